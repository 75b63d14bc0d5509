package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// TestApply tells after each step what is dirty and how a Service looks, with the records before and
// after they reach the file.
func TestApply(t *testing.T) {
	again := func(o metav1.Object) metav1.Object {
		o.SetResourceVersion("99")
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}})
		return o
	}
	steps := []struct {
		name  string
		do    func(s *Store) string
		dirty string
		web   string
		other string
	}{
		{"a Service comes", func(s *Store) string { return apply(s, service("web", 80)) }, "web", "80", "none"},
		{"its slices come", func(s *Store) string {
			return apply(s, endpointSlice("web-b", "web", 2), endpointSlice("web-a", "web", 1))
		},
			"web", "80 web-a:1 web-b:2", "none"},
		{"the same again", func(s *Store) string {
			return apply(s, again(service("web", 80)), again(endpointSlice("web-a", "web", 1)))
		},
			"", "80 web-a:1 web-b:2", "none"},
		{"a Service whose name begins alike", func(s *Store) string { return apply(s, service("web-b", 81), endpointSlice("x", "web-b", 3)) },
			"web-b", "80 web-a:1 web-b:2", "81 x:3"},
		{"a slice changes", func(s *Store) string { return apply(s, endpointSlice("web-a", "web", 5)) }, "web", "80 web-a:5 web-b:2", "81 x:3"},
		{"a slice moves", func(s *Store) string { return apply(s, endpointSlice("web-a", "web-b", 5)) }, "web web-b", "80 web-b:2", "81 web-a:5 x:3"},
		{"a slice loses its label", func(s *Store) string { return apply(s, endpointSlice("web-a", "", 5)) }, "web-b", "80 web-b:2", "81 x:3"},
		{"and comes back", func(s *Store) string { return apply(s, endpointSlice("web-a", "web", 5)) }, "web", "80 web-a:5 web-b:2", "81 x:3"},
		{"the Service goes before its slices", func(s *Store) string { return remove(s, service("web", 80)) }, "web", "none web-a:5 web-b:2", "81 x:3"},
		{"once more", func(s *Store) string { return remove(s, service("web", 80)) }, "", "none web-a:5 web-b:2", "81 x:3"},
		{"slices go", func(s *Store) string {
			return remove(s, endpointSlice("web-a", "", 0), endpointSlice("x", "", 0), endpointSlice("unknown", "", 0))
		}, "web web-b", "none web-b:2", "81"},
		{"a ServiceCIDR", func(s *Store) string { return apply(s, serviceCIDR("kubernetes", "10.43.0.0/16")) }, "NODE", "none web-b:2", "81"},
		{"the Node and another", func(s *Store) string {
			return apply(s, again(serviceCIDR("kubernetes", "10.43.0.0/16")), node("node-2", "10.42.2.0/24"))
		}, "", "none web-b:2", "81"},
		{"the own Node", func(s *Store) string { return apply(s, node("node-1", "10.42.1.0/24")) }, "NODE", "none web-b:2", "81"},
		{"names that are none", func(s *Store) string {
			return apply(s, service("a/b", 1), service("", 1), endpointSlice("y", "a/b", 1), endpointSlice(strings.Repeat("z", 300), "web", 1))
		}, "", "none web-b:2", "81"},
	}
	for _, mode := range []string{"in memory", "in the file", "reopened"} {
		t.Run(mode, func(t *testing.T) {
			o := idle(cacheFile(t))
			switch mode {
			case "in memory":
				o.Path = ""
			case "in the file":
				o = opts(o.Path)
			}
			s, _ := open(t, o)
			for _, step := range steps {
				if got := step.do(s); got != step.dirty {
					t.Errorf("%s: dirty is %q, want %q", step.name, got, step.dirty)
				}
				switch mode {
				case "in the file":
					settle(t, s)
				case "reopened":
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s, _ = open(t, o)
				}
				if got := view(t, s, "web"); got != step.web {
					t.Errorf("%s: Service web is %q, want %q", step.name, got, step.web)
				}
				if got := view(t, s, "web-b"); got != step.other {
					t.Errorf("%s: Service web-b is %q, want %q", step.name, got, step.other)
				}
			}
			want := map[source.Kind]int{source.Service: 1, source.EndpointSlice: 1, source.Node: 1, source.ServiceCIDR: 1}
			if diff := cmp.Diff(want, s.Counts()); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			n, err := s.Node()
			if err != nil || n == nil || n.Spec.PodCIDR != "10.42.1.0/24" {
				t.Errorf("Node is %v, %v", n, err)
			}
			cidrs, err := s.ServiceCIDRs()
			if err != nil || len(cidrs) != 1 || cidrs[0].Spec.CIDRs[0] != "10.43.0.0/16" {
				t.Errorf("ServiceCIDRs are %v, %v", cidrs, err)
			}
		})
	}
}

// TestRoundTrip compares whole objects: what comes back is what was stored, but for the resourceVersion.
func TestRoundTrip(t *testing.T) {
	o := idle(cacheFile(t))
	s, _ := open(t, o)
	apply(s, service("web", 80), endpointSlice("web-1", "web", 30))
	for range 2 {
		svc, slices, err := s.Service(source.Name{Namespace: "default", Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		wantService, wantSlice := service("web", 80), endpointSlice("web-1", "web", 30)
		wantService.ResourceVersion, wantSlice.ResourceVersion = "", ""
		if diff := cmp.Diff(wantService, svc); diff != "" {
			t.Errorf("Service (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantSlice, slices[0]); diff != "" {
			t.Errorf("EndpointSlice (-want +got):\n%s", diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, _ = open(t, o)
	}
}

// TestModel applies random changes to a store that commits whenever it likes, and is opened again
// now and then, and compares it with maps.
func TestModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	o := opts(shm(t))
	s, _ := open(t, o)
	services := map[string]int32{}
	type slice struct {
		owner     string
		endpoints int
	}
	all := map[string]slice{}
	for i := range 4000 {
		name := fmt.Sprintf("s%d", r.IntN(40))
		sliceName := fmt.Sprintf("e%d", r.IntN(80))
		switch r.IntN(6) {
		case 0:
			port := r.Int32N(3) + 1
			want := ""
			if services[name] != port {
				want = name
			}
			services[name] = port
			if got := apply(s, service(name, port)); got != want {
				t.Fatalf("step %d: dirty is %q, want %q", i, got, want)
			}
		case 1:
			delete(services, name)
			remove(s, service(name, 0))
		case 2, 3, 4:
			e := slice{name, r.IntN(4)}
			all[sliceName] = e
			apply(s, endpointSlice(sliceName, e.owner, e.endpoints))
		case 5:
			delete(all, sliceName)
			remove(s, endpointSlice(sliceName, "", 0))
		}
		if r.IntN(400) == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			check(t, o.Path)
			s, _ = open(t, o)
		}
		if i%20 != 0 {
			continue
		}
		want := "none"
		if port, ok := services[name]; ok {
			want = fmt.Sprint(port)
		}
		for n := range 80 {
			if e, ok := all[fmt.Sprintf("e%d", n)]; ok && e.owner == name {
				want += fmt.Sprintf(" e%d:%d", n, e.endpoints)
			}
		}
		if got := view(t, s, name); sorted(got) != sorted(want) {
			t.Fatalf("step %d: Service %s is %q, want %q", i, name, got, want)
		}
		if got := s.Counts(); got[source.Service] != len(services) || got[source.EndpointSlice] != len(all) {
			t.Fatalf("step %d: counts are %v, want %d and %d", i, got, len(services), len(all))
		}
		if got := len(strings.Fields(names(s))); got != len(services) {
			t.Fatalf("step %d: %d names, want %d", i, got, len(services))
		}
		exist := map[source.Name]struct{}{}
		for n := range all {
			if r.IntN(10) > 0 {
				exist[source.Name{Namespace: "default", Name: n}] = struct{}{}
			}
		}
		if got := len(s.Missing(source.EndpointSlice, exist)); got != len(all)-len(exist) {
			t.Fatalf("step %d: %d slices are missing, want %d", i, got, len(all)-len(exist))
		}
	}
}

func sorted(text string) string {
	fields := strings.Fields(text)
	for i := range fields {
		for j := range i {
			if fields[i] < fields[j] {
				fields[i], fields[j] = fields[j], fields[i]
			}
		}
	}
	return strings.Join(fields, " ")
}

func TestMissing(t *testing.T) {
	s, _ := open(t, idle(cacheFile(t)))
	apply(s, service("web", 80), service("dns", 53), endpointSlice("web-1", "web", 1), serviceCIDR("a", "10.43.0.0/16"), node("node-1", ""))
	exist := map[source.Name]struct{}{{Namespace: "default", Name: "web"}: {}, {Name: "a"}: {}, {Name: "node-1"}: {}}
	for kind, want := range map[source.Kind][]source.Change{
		source.Service:       {{Kind: source.Service, Namespace: "default", Name: "dns"}},
		source.EndpointSlice: {{Kind: source.EndpointSlice, Namespace: "default", Name: "web-1"}},
		source.ServiceCIDR:   nil,
		source.Node:          nil,
	} {
		if diff := cmp.Diff(want, s.Missing(kind, exist)); diff != "" {
			t.Errorf("missing of %s (-want +got):\n%s", kind, diff)
		}
	}
}

// TestNamesWhileUsed reads and changes the store within the loop over its names; many
// names, so that they are read in several transactions while commits go on.
func TestNamesWhileUsed(t *testing.T) {
	s, _ := open(t, opts(shm(t)))
	for i := range 3 * keysAtOnce {
		apply(s, service(fmt.Sprintf("s%04d", i), 80))
	}
	seen := map[source.Name]bool{}
	for name := range s.Names() {
		if seen[name] {
			t.Errorf("%v comes twice", name)
		}
		seen[name] = true
		if got := view(t, s, name.Name); got != "80" && got != "81" {
			t.Errorf("%v is %q", name, got)
		}
		apply(s, service(name.Name, 81))
	}
	if len(seen) != 3*keysAtOnce {
		t.Errorf("%d names, want %d", len(seen), 3*keysAtOnce)
	}
}

func TestCached(t *testing.T) {
	o := idle(cacheFile(t))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, cached := open(t, o)
	if cached.Complete || cached.Why != "there was no cache" {
		t.Errorf("of a new file: %+v", cached)
	}
	apply(s, service("web", 80))
	s.InStep(source.Service, "10", at)
	s.Close()
	s, cached = open(t, o)
	if cached.Complete || cached.Why != "the cache was not filled completely" || cached.Counts[source.Service] != 1 {
		t.Errorf("without EndpointSlices: %+v", cached)
	}
	if _, ok := s.Age(at); ok {
		t.Error("the age is known although EndpointSlices never were")
	}
	if completed := s.InStep(source.EndpointSlice, "11", at.Add(time.Minute)); !completed {
		t.Error("InStep did not complete the records")
	}
	if completed := s.InStep(source.EndpointSlice, "12", at.Add(2*time.Minute)); completed {
		t.Error("InStep completed the records twice")
	}
	s.Close()
	s, cached = open(t, o)
	want := Cached{Complete: true,
		Counts: map[source.Kind]int{source.Service: 1, source.EndpointSlice: 0, source.Node: 0, source.ServiceCIDR: 0},
		InStep: map[source.Kind]time.Time{source.Service: at, source.EndpointSlice: at.Add(2 * time.Minute)},
	}
	if diff := cmp.Diff(want, cached); diff != "" {
		t.Errorf("cached (-want +got):\n%s", diff)
	}
	if v := s.ResourceVersion(source.EndpointSlice); v != "12" {
		t.Errorf("resourceVersion is %q", v)
	}
	if age, ok := s.Age(at.Add(time.Hour)); !ok || age != time.Hour {
		t.Errorf("age is %v, %v", age, ok)
	}
	if age, ok := s.Age(at.Add(-time.Hour)); ok {
		t.Errorf("age is %v before the records were written", age)
	}
	info, err := os.Stat(o.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

// TestInStepIsLazy: that nothing happened is not worth a write.
func TestInStepIsLazy(t *testing.T) {
	s, _ := open(t, opts(cacheFile(t)))
	at := time.Now()
	s.InStep(source.Service, "1", at)
	wait(t, "the first is written", func() bool { return s.Stats().Commits == 1 })
	for i := range 20 {
		s.InStep(source.Service, "1", at.Add(time.Duration(i)*25*time.Second))
	}
	time.Sleep(20 * time.Millisecond)
	if got := s.Stats().Commits; got != 1 {
		t.Errorf("%d commits for times alone within 10 minutes, want 1", got)
	}
	s.InStep(source.Service, "1", at.Add(11*time.Minute))
	wait(t, "after the interval it is written", func() bool { return s.Stats().Commits == 2 })
}

// TestBytesWritten compares the figure with what the kernel counted.
func TestBytesWritten(t *testing.T) {
	s, _ := open(t, idle(cacheFile(t)))
	apply(s, service("web", 80))
	s.commit()
	start, before := written(t), s.Stats().BytesWritten
	for i := range 50 {
		for j := range 20 {
			apply(s, endpointSlice(fmt.Sprintf("e%d", j), "web", 10+i%7))
		}
		s.commit()
	}
	kernel, ours := written(t)-start, s.Stats().BytesWritten-before
	if ours < kernel*9/10 || ours > kernel*11/10 {
		t.Errorf("%d bytes written, the kernel counted %d", ours, kernel)
	}
}

// written is how many bytes this process has handed to write calls.
func written(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	var read, written int64
	if _, err := fmt.Sscanf(string(data), "rchar: %d\nwchar: %d", &read, &written); err != nil {
		t.Fatal(err)
	}
	return written
}

// TestPrivate: a file that others could read is made private.
func TestPrivate(t *testing.T) {
	o := idle(cacheFile(t))
	if err := os.WriteFile(o.Path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(o.Path, 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, o)
	info, err := os.Stat(o.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}
