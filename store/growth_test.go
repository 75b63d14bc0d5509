package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"sluice/agent/source"
)

// TestWeekOfChurn compresses a week of 100 endpoint changes a second. A commit of 5 s of churn holds 500
// changes; what bounds the file is how many commits it sees, and it does not
// grow any more after a few.
func TestWeekOfChurn(t *testing.T) {
	const services, commits, changes = 300, 300, 200
	o := opts(shm(t))
	o.CommitInterval, o.Quiet = 1<<40, 1<<40 // by hand
	s, _ := open(t, o)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range services {
		apply(s, service(fmt.Sprintf("s%03d", i), 80), endpointSlice(fmt.Sprintf("e%03d", i), fmt.Sprintf("s%03d", i), 10))
	}
	s.commit()
	start := s.Stats()
	var sizes []string
	var steady int64
	var before runtime.MemStats
	for i := range commits {
		for range changes {
			n := r.IntN(services)
			apply(s, endpointSlice(fmt.Sprintf("e%03d", n), fmt.Sprintf("s%03d", n), 5+r.IntN(10)))
		}
		if i%10 == 0 { // a deployment comes and another goes
			n := r.IntN(services)
			remove(s, endpointSlice(fmt.Sprintf("e%03d", n), "", 0), service(fmt.Sprintf("s%03d", n), 0))
			apply(s, service(fmt.Sprintf("s%03d", n), 80), endpointSlice(fmt.Sprintf("e%03d", n), fmt.Sprintf("s%03d", n), 10))
		}
		s.commit()
		if i%(commits/10) == 0 {
			sizes = append(sizes, fmt.Sprint(s.Stats().FileSize>>10))
		}
		if i == commits/5 {
			steady = s.Stats().FileSize
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	end := s.Stats()
	t.Logf("%d Services, %d commits of %d changes: file KiB over time: %s; %d KiB written a commit; heap %d KiB, then %d KiB",
		services, commits, changes, strings.Join(sizes, " "), (end.BytesWritten-start.BytesWritten)/(end.Commits-start.Commits)>>10,
		before.HeapAlloc>>10, after.HeapAlloc>>10)
	if end.FileSize > steady {
		t.Errorf("the file grew from %d to %d bytes", steady, end.FileSize)
	}
	if after.HeapAlloc > before.HeapAlloc+(512<<10) {
		t.Errorf("the heap grew from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
}

// TestCompact: after a burst of Services that went, the next start makes the file small again.
func TestCompact(t *testing.T) {
	o := idle(shm(t))
	s, _ := open(t, o)
	for i := range 5000 {
		apply(s, service(fmt.Sprintf("s%04d", i), 80), endpointSlice(fmt.Sprintf("e%04d", i), fmt.Sprintf("s%04d", i), 20))
	}
	s.Close()
	s, _ = open(t, o)
	for i := 50; i < 5000; i++ {
		remove(s, service(fmt.Sprintf("s%04d", i), 0), endpointSlice(fmt.Sprintf("e%04d", i), "", 0))
	}
	s.Close()
	large := size(t, o.Path)
	// What a crash in the middle of the copy left.
	if err := os.WriteFile(o.Path+compactSuffix, []byte("half a copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, o)
	small := size(t, o.Path)
	t.Logf("%d KiB, then %d KiB", large>>10, small>>10)
	if small > large/10 {
		t.Errorf("the file has %d bytes, before %d", small, large)
	}
	if got := s.Counts(); got[source.Service] != 50 || got[source.EndpointSlice] != 50 || view(t, s, "s0049") != "80 e0049:20" {
		t.Errorf("the copy has %v, %q", got, view(t, s, "s0049"))
	}
	apply(s, service("web", 80))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(o.Path + compactSuffix); err == nil {
		t.Error("the half copy is still there")
	}
	if s, _ = open(t, o); view(t, s, "web") != "80" {
		t.Error("a change after the copy is lost")
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
