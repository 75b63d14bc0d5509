package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"sluice/agent/source"
)

const (
	crashEnv      = "SLUICE_STORE_TEST_CRASH"
	crashServices = 50
)

// TestKilled kills a process again and again while it commits. The file then holds what the process had applied up to
// some moment, and nothing of what came after it.
func TestKilled(t *testing.T) {
	if path := os.Getenv(crashEnv); path != "" {
		applyUntilKilled(path)
	}
	path := cacheFile(t)
	last := int32(0)
	committed := 0
	for round := range 30 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), crashEnv+"="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := newestState(path)
		wait(t, "a commit of the process", func() bool { return newestState(path) > before+1 })
		time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()

		check(t, path)
		s, cached := Open(idle(path))
		if cached.Skipped > 0 || cached.Why != "the cache is empty" && cached.Why != "the cache was not filled completely" && cached.Why != "" {
			t.Errorf("round %d: %+v", round, cached)
		}
		ports := map[string]int32{}
		newest := int32(0)
		var behind []int32 // Services whose slice is not that of the same change
		for name := range s.Names() {
			svc, slices, err := s.Service(name)
			if err != nil {
				t.Fatal(err)
			}
			port := svc.Spec.Ports[0].Port
			if len(slices) != 1 || len(slices[0].Endpoints) != int(port)%7 {
				behind = append(behind, port)
			}
			ports[name.Name] = port
			newest = max(newest, port)
		}
		// The slice is applied after its Service.
		if len(behind) > 1 || len(behind) == 1 && behind[0] != newest {
			t.Errorf("round %d: Services of changes %d have not their slices; the newest is %d", round, behind, newest)
		}
		if newest < last {
			t.Errorf("round %d: went back from change %d to %d", round, last, newest)
		}
		for n := max(1, newest-crashServices+1); n <= newest; n++ {
			if got := ports[crashName(n)]; got != n {
				t.Errorf("round %d: change %d is there, %d is not: Service %s has change %d", round, newest, n, crashName(n), got)
			}
		}
		if newest > last {
			committed++
		}
		last = newest
		s.Close()
		if t.Failed() {
			return
		}
	}
	if committed < 10 {
		t.Errorf("only %d of 30 processes had committed anything", committed)
	}
	t.Logf("%d changes, %d of 30 processes committed", last, committed)
}

// newestState returns the number of the last commit in a file, 0 if there is none.
func newestState(path string) uint64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	if states := roots(f); len(states) > 0 {
		return states[0].txid
	}
	return 0
}

func crashName(n int32) string { return fmt.Sprintf("s%02d", n%crashServices) }

func applyUntilKilled(path string) {
	o := opts(path)
	o.noSync = false
	s, _ := Open(o)
	n := int32(0)
	for name := range s.Names() {
		if svc, _, err := s.Service(name); err == nil {
			n = max(n, svc.Spec.Ports[0].Port)
		}
	}
	var d Dirty
	for n = max(n, 1); ; n++ { // the last one's slice may be missing
		svc, slice := service(crashName(n), n), endpointSlice("e"+crashName(n), crashName(n), int(n)%7)
		s.Apply(source.Change{Kind: source.Service, Namespace: "default", Name: svc.Name, Object: svc}, &d)
		s.Apply(source.Change{Kind: source.EndpointSlice, Namespace: "default", Name: slice.Name, Object: slice}, &d)
		clear(d.Services)
		time.Sleep(50 * time.Microsecond)
	}
}
