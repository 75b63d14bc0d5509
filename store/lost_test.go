package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/source"
	"sluice/test/testlog"
)

// TestTruncatedWhileOpen truncates the file under an open store, so that reads of the mapping get SIGBUS.
func TestTruncatedWhileOpen(t *testing.T) {
	for _, size := range []int64{0, pageSize, 3 * pageSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			log := &testlog.Records{}
			o := opts(shm(t))
			o.CommitInterval = 10 * time.Millisecond
			o.Log = slog.New(log)
			s, _ := open(t, o)
			for i := range 100 {
				apply(s, service(fmt.Sprintf("s%03d", i), 80), endpointSlice(fmt.Sprintf("e%03d", i), fmt.Sprintf("s%03d", i), 10))
			}
			s.InStep(source.Service, "1", time.Now())
			s.InStep(source.EndpointSlice, "1", time.Now())
			settle(t, s)
			if err := os.Truncate(o.Path, size); err != nil {
				t.Fatal(err)
			}
			_, _, err := s.Service(source.Name{Namespace: "default", Name: "s099"})
			if !errors.Is(err, ErrLost) {
				t.Fatalf("the error is %v", err)
			}
			select {
			case <-s.Lost():
			default:
				t.Error("Lost tells nothing")
			}
			// The source hands over everything again.
			if dirty := apply(s, service("s001", 80)); dirty != "s001" {
				t.Errorf("dirty is %q", dirty)
			}
			if _, _, err := s.Service(source.Name{Namespace: "default", Name: "s001"}); !errors.Is(err, ErrLost) {
				t.Errorf("before all is handed over, the error is %v", err)
			}
			if s.InStep(source.Service, "2", time.Now()) {
				t.Error("complete without EndpointSlices")
			}
			if !s.InStep(source.EndpointSlice, "2", time.Now()) {
				t.Error("not complete")
			}
			if got := view(t, s, "s001") + ", " + view(t, s, "s002") + ", " + names(s); got != "80, none, s001" {
				t.Errorf("the store has %s", got)
			}
			wait(t, "a new file", func() bool { return s.Stats().FileSize > 0 && s.Stats().Waiting == 0 })
			logged := strings.Join(log.Take(), "\n")
			if !strings.Contains(logged, "was lost while in use") || !strings.Contains(logged, "is written again") || strings.Count(logged, "WARN") > 2 {
				t.Errorf("logged %s", logged) // the loss, and perhaps the file kept aside
			}
			s.Close()
			if _, cached := open(t, o); !cached.Complete || cached.Counts[source.Service] != 1 {
				t.Errorf("the next start: %+v", cached)
			}
		})
	}
}

// TestTruncatedWhileCommitting truncates again and again while both goroutines read the mapping.
func TestTruncatedWhileCommitting(t *testing.T) {
	o := opts(shm(t))
	s, _ := Open(o)
	losses := 0
	for i := range 6000 {
		apply(s, service(fmt.Sprintf("s%03d", i%300), int32(i)))
		_, _, err := s.Service(source.Name{Namespace: "default", Name: fmt.Sprintf("s%03d", i*7%300)})
		if err != nil && !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		if i%500 == 250 {
			_ = os.Truncate(o.Path, int64(i%3)*2*pageSize)
		}
		select {
		case <-s.Lost():
			losses++
			s.InStep(source.Service, "1", time.Now())
			s.InStep(source.EndpointSlice, "1", time.Now())
		default:
		}
	}
	if losses == 0 || losses > maxLosses {
		t.Errorf("lost %d times, want 1 to %d", losses, maxLosses)
	}
	_ = s.Close() // tells of the last loss
	s, _ = open(t, o)
	apply(s, service("web", 80))
}

// TestTruncatedBeforeOpen has a file end where bbolt maps it, right after it was examined: it is not locked for ever.
func TestTruncatedBeforeOpen(t *testing.T) {
	path := cacheFile(t)
	s, _ := open(t, idle(path))
	for i := range 300 {
		apply(s, service(fmt.Sprintf("s%03d", i), int32(i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := openLocked(path, os.O_RDWR, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*pageSize); err != nil { // the meta pages stay
		t.Fatal(err)
	}
	if _, err := openDB(f); err == nil {
		t.Fatal("bbolt opened a file without its pages")
	}
	if f, err = openLocked(path, os.O_RDWR, time.Second); err != nil {
		t.Fatal(err)
	}
	f.Close()
	os.Remove(path)
}

// TestLocked: another process has the file. The store works in memory, and takes the file when it is free.
func TestLocked(t *testing.T) {
	path := cacheFile(t)
	s, _ := open(t, idle(path))
	apply(s, service("old", 1))
	s.Close()

	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	log := &testlog.Records{}
	o := opts(path)
	o.CommitInterval = 10 * time.Millisecond
	o.Log = slog.New(log)
	start := time.Now()
	s, cached := open(t, o)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Open waited %v for the lock", took)
	}
	logged := log.Take()
	if cached.Complete || len(logged) != 1 || !strings.Contains(logged[0], "another process") || !strings.Contains(logged[0], "stop the other process") {
		t.Errorf("%+v, logged %q", cached, logged)
	}
	apply(s, service("web", 80))
	time.Sleep(50 * time.Millisecond)
	if got := view(t, s, "web"); got != "80" {
		t.Errorf("in memory, Service web is %q", got)
	}
	f.Close()
	settle(t, s)
	if logged := log.Take(); len(logged) != 1 || !strings.Contains(logged[0], "is written again") {
		t.Errorf("logged %q", logged)
	}
	s.Close()
	// What was in the file is older than what the store knew, and is gone.
	s, _ = open(t, idle(path))
	if got := names(s); got != "web" {
		t.Errorf("the file has Services %q", got)
	}
}

// TestReplacedWhileWaiting: the file that was waited for is no longer the one at the path.
func TestReplacedWhileWaiting(t *testing.T) {
	path := cacheFile(t)
	f, err := openLocked(path, os.O_RDWR|os.O_CREATE, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		os.Rename(path, path+".old")
		os.WriteFile(path, nil, 0o600)
		f.Close()
	}()
	got, err := openLocked(path, os.O_RDWR|os.O_CREATE, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	a, _ := got.Stat()
	b, _ := os.Stat(path)
	if !os.SameFile(a, b) {
		t.Error("the lock is on a file that is not at the path")
	}
}
