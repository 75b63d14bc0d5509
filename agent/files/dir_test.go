package files

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryComesLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	r := start(t, dir)
	want := []string{".: there is no such directory: make it; it is taken up as soon as it is there"}
	eventually(t, "the problem", func() bool { return cmp.Equal(want, r.reasons(dir)) })
	time.Sleep(100 * time.Millisecond)
	if r.synced {
		t.Error("Synced without a directory")
	}
	must(t, os.Mkdir(dir, 0o755))
	write(t, dir, "a.yaml", named("a", "10.43.0.1"))
	r.wantNames(t, "Service default/a")
	r.wantSynced(t)
	eventually(t, "no problem", func() bool { return len(r.reasons(dir)) == 0 })
	write(t, dir, "a.yaml", named("b", "10.43.0.1"))
	r.wantNames(t, "Service default/b")
}

func TestDirectoryGoes(t *testing.T) {
	for name, takeAway := range map[string]func(dir string) error{
		"removed":    os.RemoveAll,
		"moved":      func(dir string) error { return os.Rename(dir, dir+"-away") },
		"unreadable": func(dir string) error { return replaceByFile(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "manifests")
			must(t, os.Mkdir(dir, 0o755))
			write(t, dir, "a.yaml", named("a", "10.43.0.1"))
			r := start(t, dir)
			r.wantSynced(t)
			r.wantNames(t, "Service default/a")
			must(t, takeAway(dir))
			eventually(t, "a problem", func() bool {
				got := r.reasons(dir)
				return len(got) == 1 && got[0] != "" && got[0][0] == '.'
			})
			r.wantNames(t, "Service default/a") // it stays as it was

			other := dir + "-new"
			must(t, os.Mkdir(other, 0o755))
			write(t, other, "b.yaml", named("b", "10.43.0.1"))
			if name == "unreadable" {
				must(t, os.Remove(dir))
			}
			must(t, os.Rename(other, dir))
			r.wantNames(t, "Service default/b")
			eventually(t, "no problem", func() bool { return len(r.reasons(dir)) == 0 })
			write(t, dir, "c.yaml", named("c", "10.43.0.1"))
			r.wantNames(t, "Service default/b", "Service default/c")
		})
	}
}

// replaceByFile puts a file in the place of a directory.
func replaceByFile(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.WriteFile(dir, nil, 0o644)
}

// TestVolume swaps the contents of a directory as kubelet does in a ConfigMap's volume.
func TestVolume(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		must(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, version, "a.yaml"), []byte(text), 0o644))
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..1", named("a", "10.43.0.1"))
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r := start(t, dir)
	r.wantSynced(t)
	r.wantNames(t, "Service default/a")
	publish("..2", named("a", "10.43.0.2"))
	must(t, os.RemoveAll(filepath.Join(dir, "..1")))
	eventually(t, "the second version", func() bool { return clusterIPOf(r, "a") == "10.43.0.2" })
	publish("..3", named("b", "10.43.0.2"))
	r.wantNames(t, "Service default/b")
}

func TestLinks(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	path := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	for _, name := range []string{"one", "two", "elsewhere", "hop"} {
		must(t, os.Mkdir(path(name), 0o755))
	}
	must(t, os.Symlink("one", path("current")))
	must(t, os.Symlink(path("elsewhere", "x.yaml"), path("hop", "x")))
	must(t, os.Symlink("../hop/x", path("one", "x.yaml")))
	write(t, path("elsewhere"), "x.yaml", named("x", "10.43.0.1"))
	write(t, path("two"), "y.yaml", named("w", "10.43.0.9"))

	if diff := cmp.Diff([]string{root, path("one"), path("hop"), path("elsewhere")}, linkDirs(path("current", "x.yaml"))); diff != "" {
		t.Errorf("linkDirs (-want +got):\n%s", diff)
	}

	r := start(t, path("current"))
	r.wantSynced(t)
	r.wantNames(t, "Service default/x")

	os.WriteFile(path("elsewhere", "x.yaml"), []byte(named("x", "10.43.0.2")), 0o644)
	eventually(t, "the linked file is written in place", func() bool { return clusterIPOf(r, "x") == "10.43.0.2" })
	write(t, path("elsewhere"), "x.yaml", named("x", "10.43.0.3"))
	eventually(t, "the linked file is replaced", func() bool { return clusterIPOf(r, "x") == "10.43.0.3" })
	write(t, path("elsewhere"), "z.yaml", named("x", "10.43.0.4"))
	must(t, os.Symlink(path("elsewhere", "z.yaml"), path("hop", "new")))
	must(t, os.Rename(path("hop", "new"), path("hop", "x")))
	eventually(t, "a link on the way is changed", func() bool { return clusterIPOf(r, "x") == "10.43.0.4" })
	must(t, os.Symlink("two", path("new")))
	must(t, os.Rename(path("new"), path("current")))
	r.wantNames(t, "Service default/w")
}

// TestWithoutInotify follows changes by looking alone.
func TestWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1"))
	s := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	s.dir = dir
	r := &recorder{objects: make(map[string]metav1.Object)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		l := loop{source: s, sink: r, started: time.Now()}
		done <- l.run(ctx)
	}()
	defer func() { cancel(); <-done }()
	r.wantNames(t, "Service default/a")
	write(t, dir, "a.yaml", named("b", "10.43.0.1"))
	r.wantNames(t, "Service default/b")
	// The same size, and on a coarse clock the same time.
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(named("b", "10.43.0.2")), 0o644))
	eventually(t, "an edit in place", func() bool { return clusterIPOf(r, "b") == "10.43.0.2" })
}

// TestWithinASecond measures how soon changes are taken up. A busy machine gets
// three tries.
func TestWithinASecond(t *testing.T) {
	change := func(dir string, n int) { write(t, dir, "a.yaml", named("a", fmt.Sprintf("10.43.1.%d", n))) }
	tests := map[string]func(dir string, n int){
		"a file is replaced": change,
		"a file is written in place": func(dir string, n int) {
			must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(named("a", fmt.Sprintf("10.43.1.%d", n))), 0o644))
		},
		"the directory is made again": func(dir string, n int) {
			must(t, os.RemoveAll(dir))
			time.Sleep(50 * time.Millisecond)
			must(t, os.Mkdir(dir, 0o755))
			change(dir, n)
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "manifests")
			must(t, os.Mkdir(dir, 0o755))
			change(dir, 0)
			r := start(t, dir)
			eventually(t, "the first version", func() bool { return clusterIPOf(r, "a") == "10.43.1.0" })
			best := time.Hour
			for n := 1; n <= 3 && best > time.Second; n++ {
				do(dir, n)
				begun := time.Now()
				eventually(t, name, func() bool { return clusterIPOf(r, "a") == fmt.Sprintf("10.43.1.%d", n) })
				best = min(best, time.Since(begun))
			}
			t.Logf("taken up after %v", best)
			if best > time.Second {
				t.Errorf("taken up after %v", best)
			}
		})
	}
}

// TestReplacedByRemoving removes a file before it makes it again, as some programs do.
func TestReplacedByRemoving(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1")+named("b", "10.43.0.2"))
	r := start(t, dir)
	r.wantSynced(t)
	r.handed()
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	time.Sleep(goneGrace / 2)
	write(t, dir, "a.yaml", named("a", "10.43.0.1")+named("b", "10.43.0.3"))
	eventually(t, "the new version", func() bool { return clusterIPOf(r, "b") == "10.43.0.3" })
	time.Sleep(2 * goneGrace)
	if n := r.handed(); n != 1 {
		t.Errorf("%d changes were handed on, want 1", n)
	}
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.wantNames(t)
}

func TestUnmounted(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1"))
	s := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	s.dir = dir
	r := &recorder{objects: make(map[string]metav1.Object)}
	scan := func() {
		if _, err := s.scan(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	scan()
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	s.device++ // as if it had been on a filesystem that is gone now
	scan()
	time.Sleep(goneGrace)
	scan()
	r.wantNames(t, "Service default/a")
	want := []string{".: the directory holds no manifests and is on another filesystem than before: mount that, or put a manifest here"}
	if diff := cmp.Diff(want, r.reasons(dir)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	write(t, dir, "b.yaml", named("b", "10.43.0.1"))
	scan()
	time.Sleep(goneGrace)
	scan()
	r.wantNames(t, "Service default/b")
	if got := r.reasons(dir); got != nil {
		t.Errorf("problems: %q", got)
	}
}

func TestQuiet(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	id := func(age time.Duration, size int64) fileID {
		return fileID{size: size, mtime: now.Add(-age).UnixNano(), ctime: now.Add(-age).UnixNano()}
	}
	steps := []struct {
		name  string
		id    fileID
		later time.Duration
		want  time.Duration
	}{
		{"old", id(time.Minute, 1), 0, 0},
		{"young", id(50*time.Millisecond, 2), 0, 200 * time.Millisecond},
		{"the same, later", id(50*time.Millisecond, 2), 100 * time.Millisecond, 100 * time.Millisecond},
		{"it grew", id(0, 3), 150 * time.Millisecond, 200 * time.Millisecond},
		{"it is left alone", id(0, 3), 400 * time.Millisecond, 0},
		{"from the future", id(-time.Hour, 4), 500 * time.Millisecond, 200 * time.Millisecond},
		{"from the future, left alone", id(-time.Hour, 4), 700 * time.Millisecond, 0},
	}
	f := &file{name: "a.yaml"}
	for _, s := range steps {
		if got := f.quiet(s.id, now.Add(s.later)); got != s.want {
			t.Errorf("%s: wait %v, want %v", s.name, got, s.want)
		}
	}
}

func TestSettled(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for age, want := range map[time.Duration]bool{0: false, time.Second: false, 4 * time.Second: true, -time.Hour: false} {
		if got := (fileID{mtime: at.Add(-age).UnixNano()}).settled(at); got != want {
			t.Errorf("a version of the age %v: settled %v, want %v", age, got, want)
		}
	}
}

// TestUnchangedFilesAreNotRead takes the right to read a file away after it was read.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1"))
	must(t, os.Chtimes(filepath.Join(dir, "a.yaml"), time.Time{}, time.Now().Add(-time.Hour)))
	s := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	s.dir = dir
	r := &recorder{objects: make(map[string]metav1.Object)}
	if _, err := s.scan(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.files[0].settled = true // as after settleTime, which the test does not wait for
	d, names, err := readDir(dir)
	must(t, err)
	defer d.Close()
	if changed := s.merge(d, names, &outcome{}); len(changed) != 0 {
		t.Errorf("%d files are to be read again", len(changed))
	}
	write(t, dir, "a.yaml", named("a", "10.43.0.2"))
	if changed := s.merge(d, names, &outcome{}); len(changed) != 1 {
		t.Errorf("%d files are to be read after a change, want 1", len(changed))
	}
}
