package files

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sluice/test/testlog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// named returns a Service document.
func named(name, clusterIP string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n  clusterIP: %s\n  ports:\n  - port: 80\n", name, clusterIP)
}

func clusterIPOf(r *recorder, name string) string {
	if s, ok := r.object("Service default/" + name).(*corev1.Service); ok {
		return s.Spec.ClusterIP
	}
	return ""
}

func TestChangesAreTakenUp(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1")+named("b", "10.43.0.2"))
	r := start(t, dir)
	r.wantSynced(t)
	r.wantNames(t, "Service default/a", "Service default/b")

	steps := []struct {
		name  string
		do    func()
		names []string
		// handed is how many changes it takes.
		handed int
	}{
		{"a file comes", func() { write(t, dir, "c.yml", named("c", "10.43.0.3")) }, []string{"a", "b", "c"}, 1},
		{"a JSON file comes", func() {
			write(t, dir, "d.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"d"},"spec":{"clusterIP":"10.43.0.4","ports":[{"port":80}]}}`)
		}, []string{"a", "b", "c", "d"}, 1},
		{"one document of two is edited in place", func() {
			os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(named("a", "10.43.0.1")+named("b", "10.43.0.22")), 0o644)
		}, []string{"a", "b", "c", "d"}, 1},
		{"documents change places", func() { write(t, dir, "a.yaml", "# new\n"+named("b", "10.43.0.22")+named("a", "10.43.0.1")) }, []string{"a", "b", "c", "d"}, 0},
		{"a file is renamed", func() { os.Rename(filepath.Join(dir, "c.yml"), filepath.Join(dir, "e.yml")) }, []string{"a", "b", "c", "d"}, 0},
		{"a file gets a name that is not read", func() { os.Rename(filepath.Join(dir, "e.yml"), filepath.Join(dir, ".e.yml")) }, []string{"a", "b", "d"}, 1},
		{"a document is removed", func() { write(t, dir, "a.yaml", named("a", "10.43.0.1")) }, []string{"a", "d"}, 1},
		{"a file is removed", func() { os.Remove(filepath.Join(dir, "a.yaml")) }, []string{"d"}, 1},
		{"a list comes", func() {
			write(t, dir, "l.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}\n- {apiVersion: v1, kind: Service, metadata: {name: w}, spec: {clusterIP: 10.43.0.6, ports: [{port: 80}]}}\n")
		}, []string{"d", "x", "w"}, 2},
		{"one item of a list is edited", func() {
			write(t, dir, "l.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}\n- {apiVersion: v1, kind: Service, metadata: {name: w}, spec: {clusterIP: 10.43.0.7, ports: [{port: 80}]}}\n")
		}, []string{"d", "x", "w"}, 1},
	}
	r.handed()
	for _, step := range steps {
		step.do()
		// A last change shows that all before it was seen.
		write(t, dir, "z.yaml", named("z", "10.43.1.1"))
		names := []string{"Service default/z"}
		for _, n := range step.names {
			names = append(names, "Service default/"+n)
		}
		slices.Sort(names)
		eventually(t, step.name, func() bool { return slices.Equal(r.names(), names) })
		os.Remove(filepath.Join(dir, "z.yaml"))
		eventually(t, step.name+", without z", func() bool { return slices.Equal(r.names(), names[:len(names)-1]) })
		if got := r.handed(); got != step.handed+2 {
			t.Errorf("%s: %d changes were handed on, want %d", step.name, got-2, step.handed)
		}
	}
	if got := r.reasons(dir); got != nil {
		t.Errorf("problems: %q", got)
	}
}

func TestChangesOfOneScanStayTogether(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1")+named("b", "10.43.0.2"))
	r := start(t, dir)
	r.wantSynced(t)
	r.handed()
	write(t, dir, "a.yaml", named("b", "10.43.0.1")+named("c", "10.43.0.2"))
	r.wantNames(t, "Service default/b", "Service default/c")
	if len(r.applies) != 1 {
		t.Fatalf("the changes came in %d parts, want one", len(r.applies))
	}
	var got []string
	for _, c := range r.applies[0] {
		got = append(got, fmt.Sprintf("%s gone=%v", c.Name, c.Object == nil))
	}
	if diff := cmp.Diff([]string{"a gone=true", "b gone=false", "c gone=false"}, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestHalfWritten writes a file slowly: what is complete YAML at each stop must not be taken for the whole.
func TestHalfWritten(t *testing.T) {
	for _, before := range []string{"", named("a", "10.43.0.1") + named("b", "10.43.0.2")} {
		t.Run(fmt.Sprintf("before=%d bytes", len(before)), func(t *testing.T) {
			dir := t.TempDir()
			if before != "" {
				write(t, dir, "a.yaml", before)
			}
			r := start(t, dir)
			r.wantSynced(t)
			r.handed()
			f, err := os.Create(filepath.Join(dir, "a.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(600 * time.Millisecond)
			f.WriteString(named("a", "10.43.0.8"))
			time.Sleep(1200 * time.Millisecond)
			if n := r.handed(); n != 0 {
				t.Errorf("%d changes were handed on of a file that is being written", n)
			}
			f.WriteString(named("b", "10.43.0.9"))
			f.Close()
			r.wantNames(t, "Service default/a", "Service default/b")
			eventually(t, "the new version", func() bool { return clusterIPOf(r, "a") == "10.43.0.8" && clusterIPOf(r, "b") == "10.43.0.9" })
			if got := r.reasons(dir); got != nil {
				t.Errorf("problems: %q", got)
			}
		})
	}
}

func TestWriterAtStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1"))
	f, err := os.Create(filepath.Join(dir, "b.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString(named("b", "10.43.0.2"))
	r := start(t, dir)
	r.wantNames(t, "Service default/a")
	time.Sleep(200 * time.Millisecond)
	if r.synced {
		t.Error("Synced before a file that is being written was handed on")
	}
	f.Close()
	r.wantSynced(t)
	r.wantNames(t, "Service default/a", "Service default/b")
}

// TestBadEdits edits a good file to a bad one. What is bad must not disturb what is good.
func TestBadEdits(t *testing.T) {
	good := named("a", "10.43.0.1") + named("b", "10.43.0.2") + named("c", "10.43.0.3")
	const (
		a, b, c = "Service default/a", "Service default/b", "Service default/c"
		d, e    = "Service default/d", "Service default/e"
	)
	tests := []struct {
		name     string
		text     string
		names    []string
		problems []string
	}{
		{"a bad value", named("a", "10.43.0.11") + named("b", "127.0.0.1") + named("c", "10.43.0.3"), []string{a, b, c},
			[]string{`m.yaml, document 2 (line 11): Service default/b: spec.clusterIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128) (until this is mended, Service default/b: as before)`}},
		{"a bad value, and another removed", named("b", "127.0.0.1") + named("c", "10.43.0.3"), []string{b, c},
			[]string{`m.yaml, document 1 (line 2): Service default/b: spec.clusterIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128) (until this is mended, Service default/b: as before)`}},
		{"broken, but its name shows", "# x\n" + named("b", "10.43.0.2") + "broken\n" + named("c", "10.43.0.3"), []string{b, c},
			[]string{"m.yaml, document 1 (line 3): line 12: could not find expected ':' (until this is mended, Service default/b: as before)"}},
		{"broken altogether", named("a", "10.43.0.1") + "---\n{\n" + named("c", "10.43.0.3"), []string{a, b, c},
			[]string{"m.yaml, document 2 (line 11): line 11: did not find expected node content (until this is mended, Service default/b: as before)"}},
		{"broken altogether, but all is described", good + "---\n{\n", []string{a, b, c},
			[]string{"m.yaml, document 4 (line 29): line 29: did not find expected node content"}},
		{"a new name and a bad value", named("a", "10.43.0.1") + named("d", "127.0.0.1") + named("c", "10.43.0.3"), []string{a, b, c},
			[]string{`m.yaml, document 2 (line 11): Service default/d: spec.clusterIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128) (until this is mended, Service default/b: as before)`}},
		{"no name any more", named("a", "10.43.0.1") + named("''", "10.43.0.2") + named("c", "10.43.0.3"), []string{a, b, c},
			[]string{`m.yaml, document 2 (line 11): metadata.name: Required value: give the object a name (until this is mended, Service default/b: as before)`}},
		{"a NUL byte in the end", named("a", "10.43.0.1") + "\x00", []string{a, b, c},
			[]string{"m.yaml, document 1 (line 10): the file holds a NUL byte, so it is no YAML or JSON text (binary, or UTF-16?): it is read no further (until this is mended, Service default/a, Service default/b, Service default/c: as before)"}},
		{"empty", "", []string{a, b, c}, []string{"m.yaml: the file is empty: fill it, or remove it to remove what it described"}},
		{"nothing but a comment", "# nothing\n", []string{}, nil},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", []string{}, nil},
		{"twice", named("d", "10.43.0.4") + named("e", "10.43.0.5") + named("d", "10.43.0.6"), []string{d, e},
			[]string{"m.yaml, document 3 (line 20): Service default/d: m.yaml, document 1 describes it already, and that is used: remove one of the two"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "m.yaml", good)
			r := start(t, dir)
			r.wantSynced(t)
			write(t, dir, "m.yaml", tt.text)
			eventually(t, "the problems", func() bool { return len(r.reasons(dir)) == len(tt.problems) })
			r.wantNames(t, tt.names...)
			if diff := cmp.Diff(tt.problems, r.reasons(dir)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if slices.Contains(tt.names, b) && clusterIPOf(r, "b") != "10.43.0.2" {
				t.Errorf("b is at %s, want its address from before", clusterIPOf(r, "b"))
			}
			write(t, dir, "other.yaml", named("other", "10.43.0.99"))
			r.wantNames(t, append(tt.names, "Service default/other")...)
			os.Remove(filepath.Join(dir, "m.yaml"))
			r.wantNames(t, "Service default/other")
			eventually(t, "no problems", func() bool { return len(r.reasons(dir)) == 0 })
		})
	}
}

// TestRefusedStays leaves a bad document in a file that goes on being edited.
func TestRefusedStays(t *testing.T) {
	dir := t.TempDir()
	for i, bad := range []string{named("bad", "127.0.0.1"), "---\nnot: [valid\n"} {
		name := fmt.Sprintf("%d.yaml", i)
		text := named(fmt.Sprintf("a%d", i), "10.43.0.1")
		write(t, dir, name, text+bad)
		r := start(t, dir)
		eventually(t, "the first version", func() bool { return clusterIPOf(r, fmt.Sprintf("a%d", i)) != "" })
		write(t, dir, name, bad)
		eventually(t, "the other document's removal", func() bool { return clusterIPOf(r, fmt.Sprintf("a%d", i)) == "" })
		os.Remove(filepath.Join(dir, name))
	}
}

func TestDoubles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", named("x", "10.43.0.2"))
	r := start(t, dir)
	r.wantSynced(t)
	eventually(t, "b", func() bool { return clusterIPOf(r, "x") == "10.43.0.2" })

	write(t, dir, "a.yaml", named("x", "10.43.0.1"))
	eventually(t, "a comes before b", func() bool { return clusterIPOf(r, "x") == "10.43.0.1" })
	want := []string{"b.yaml, document 1 (line 2): Service default/x: a.yaml, document 1 describes it already, and that is used: remove one of the two"}
	eventually(t, "the problem", func() bool { return cmp.Equal(want, r.reasons(dir)) })

	write(t, dir, "b.yaml", named("x", "10.43.0.3"))
	write(t, dir, "a.yaml", named("x", "127.0.0.1"))
	eventually(t, "a is refused", func() bool { return len(r.reasons(dir)) == 2 })
	if got := clusterIPOf(r, "x"); got != "10.43.0.1" {
		t.Errorf("x is at %s: what was in use gave way to the second while the first is broken", got)
	}
	os.Remove(filepath.Join(dir, "a.yaml"))
	eventually(t, "b takes over though it did not change", func() bool { return clusterIPOf(r, "x") == "10.43.0.3" })
	eventually(t, "no problem", func() bool { return len(r.reasons(dir)) == 0 })
}

func TestCreationTimestamp(t *testing.T) {
	dir := t.TempDir()
	at := func(name string, sec int64) {
		if err := os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Unix(sec, 0)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "own.yaml", strings.Replace(named("own", "10.43.0.1"), "  name", "  creationTimestamp: 2001-09-09T01:46:40Z\n  name", 1))
	write(t, dir, "file.yaml", named("file", "10.43.0.2"))
	at("file.yaml", 1_500_000_000)
	r := start(t, dir)
	r.wantSynced(t)
	created := func(name string) int64 { return r.object("Service default/" + name).GetCreationTimestamp().Unix() }
	if got := created("own"); got != 1_000_000_000 {
		t.Errorf("own: created %d, want what the document says", got)
	}
	if got := created("file"); got != 1_500_000_000 {
		t.Errorf("file: created %d, want the file's time", got)
	}
	write(t, dir, "file.yaml", named("file", "10.43.0.3"))
	write(t, dir, "own.yaml", named("own", "10.43.0.4"))
	eventually(t, "both edits", func() bool { return clusterIPOf(r, "file") == "10.43.0.3" && clusterIPOf(r, "own") == "10.43.0.4" })
	if got := created("file"); got != 1_500_000_000 {
		t.Errorf("file: created %d after an edit, want it kept", got)
	}
	if got := created("own"); got != 1_000_000_000 {
		t.Errorf("own: created %d after an edit, want it kept", got)
	}
}

// TestProblemsAreToldOnce holds that a problem keeps its time, and is logged once.
func TestProblemsAreToldOnce(t *testing.T) {
	dir := t.TempDir()
	var log testlog.Buffer
	write(t, dir, "a.yaml", named("a", "127.0.0.1")+"---\napiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod\n")
	r := startWith(t, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.wantSynced(t)
	eventually(t, "the problem", func() bool { return len(r.reasons(dir)) == 1 })
	since := r.problems[0].Since
	if time.Since(since) > time.Minute {
		t.Errorf("since %v", since)
	}
	for i := range 3 {
		write(t, dir, "b.yaml", named("b", fmt.Sprintf("10.43.0.%d", i+1)))
		eventually(t, "b", func() bool { return clusterIPOf(r, "b") == fmt.Sprintf("10.43.0.%d", i+1) })
	}
	if !r.problems[0].Since.Equal(since) {
		t.Errorf("since %v, was %v", r.problems[0].Since, since)
	}
	for _, text := range []string{"127.0.0.1", "kind=\"Pod (v1)\""} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("%q was logged %d times, want once:\n%s", text, n, log.String())
		}
	}
}

func TestOtherNodesAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "nodes.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: one}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: two}\n")
	r := startWith(t, Options{Dir: dir, NodeName: "two"})
	r.wantSynced(t)
	r.wantNames(t, "Node two")
}

func TestString(t *testing.T) {
	if got := New(Options{Dir: "/etc/sluice"}).String(); got != "manifests /etc/sluice" {
		t.Errorf("String() = %q", got)
	}
}

// TestManyFiles loads more than is handed on at once: what came in every piece must be known afterwards.
func TestManyFiles(t *testing.T) {
	const files = 3 * batch
	dir := t.TempDir()
	for i := range files {
		write(t, dir, fmt.Sprintf("%04d.yaml", i), serviceText(i)+sliceText(i, 1))
	}
	r := start(t, dir)
	r.wantSynced(t)
	if got := len(r.names()); got != 2*files {
		t.Fatalf("%d objects, want %d", got, 2*files)
	}
	for i := range files {
		if err := os.Remove(filepath.Join(dir, fmt.Sprintf("%04d.yaml", i))); err != nil {
			t.Fatal(err)
		}
	}
	r.wantNames(t)
}

// TestWhatCannotBeReadDoesNotGo starts with documents that may be about anything: an earlier run may know
// what they described, and nothing of it must be called gone.
func TestWhatCannotBeReadDoesNotGo(t *testing.T) {
	for name, content := range map[string]string{
		"no manifests":         "",
		"broken beyond a name": named("a", "10.43.0.1") + "---\n\tx: [",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if content != "" {
				write(t, dir, "a.yaml", content)
			}
			r := start(t, dir)
			r.wantSynced(t)
			if told := r.toldWhatExists(); told {
				t.Error("what exists was told, though it is not known")
			}
			write(t, dir, "a.yaml", named("a", "10.43.0.1"))
			r.wantNames(t, "Service default/a")
			eventually(t, "what exists is told", r.toldWhatExists)
		})
	}
}

func (r *recorder) toldWhatExists() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}
