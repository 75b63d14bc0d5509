package files

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// recorder is a sink that remembers what it was given.
type recorder struct {
	mu       sync.Mutex
	objects  map[string]metav1.Object // by kind and name
	applies  [][]source.Change
	problems []source.Problem
	replaced []string // what exists, as Replace was told
	told     bool     // Replace was called
	synced   bool
}

func (r *recorder) Apply(ctx context.Context, changes []source.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applies = append(r.applies, changes)
	for _, c := range changes {
		k := key{c.Kind, c.Namespace, c.Name}.String()
		if c.Object == nil {
			delete(r.objects, k)
		} else {
			r.objects[k] = c.Object
		}
	}
	return ctx.Err()
}

func (r *recorder) Replace(_ context.Context, kind source.Kind, exist map[source.Name]struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = true
	for n := range exist {
		r.replaced = append(r.replaced, key{kind, n.Namespace, n.Name}.String())
	}
	return nil
}

// Synced must come when all that exists was handed on, and named if anything was.
func (r *recorder) Synced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = true
	for k := range r.objects {
		r.synced = r.synced && (!r.told || slices.Contains(r.replaced, k))
	}
}

func (r *recorder) SetProblems(problems []source.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = problems
}

// names returns what exists now.
func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.objects))
}

func (r *recorder) object(name string) metav1.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[name]
}

// reasons returns the problems as text, without the directory.
func (r *recorder) reasons(dir string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, p := range r.problems {
		where, err := filepath.Rel(dir, p.Where)
		if err != nil {
			where = p.Where
		}
		list = append(list, where+": "+p.Reason)
	}
	return list
}

// handed returns how many changes were handed on since the last call.
func (r *recorder) handed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, a := range r.applies {
		n += len(a)
	}
	r.applies = nil
	return n
}

// start runs a source over dir until the test ends.
func start(t testing.TB, dir string) *recorder {
	t.Helper()
	return startWith(t, Options{Dir: dir})
}

func startWith(t testing.TB, options Options) *recorder {
	t.Helper()
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	r := &recorder{objects: make(map[string]metav1.Object)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- New(options).Run(ctx, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// patience is how long to wait for what has to come: much longer than it takes,
// as the machine may be busy with other tests. TestWithinASecond is about time.
const patience = 10 * time.Second

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	waitFor(t, patience, what, ok)
}

func waitFor(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantNames waits until exactly these objects exist.
func (r *recorder) wantNames(t testing.TB, names ...string) {
	t.Helper()
	slices.Sort(names)
	deadline := time.Now().Add(patience)
	for !slices.Equal(r.names(), names) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: want objects %q, have %q", patience, names, r.names())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantSynced waits for the first complete picture.
func (r *recorder) wantSynced(t testing.TB) {
	t.Helper()
	eventually(t, "Synced", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.synced
	})
}

// write writes a file in one go, under another name first, as careful programs do.
func write(t testing.TB, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name+".tmp")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
