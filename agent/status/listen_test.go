package status

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestListenModes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "sluice", "s.sock")
	l, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]fs.FileMode{
		filepath.Dir(socket): fs.ModeDir | 0o755,
		socket:               fs.ModeSocket | 0o660,
		socket + lockSuffix:  0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
}

func TestListenTwice(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	first, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen(t.Context(), socket)
	if running, ok := errors.AsType[*RunningError](err); !ok || running.PID != os.Getpid() {
		t.Errorf("second Listen: got %v, want a RunningError with pid %d", err, os.Getpid())
	}
	if _, err := net.Dial("unix", socket); err != nil {
		t.Errorf("the first is not reachable any more: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	again, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}

func TestListenAtOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	leaveSocket(t, socket)
	const n = 20
	var wg sync.WaitGroup
	got := make([]error, n)
	listeners := make([]*Listener, n)
	for i := range n {
		wg.Go(func() { listeners[i], got[i] = Listen(t.Context(), socket) })
	}
	wg.Wait()
	won := 0
	for i := range n {
		if got[i] == nil {
			won++
			defer listeners[i].Close()
		} else if _, ok := errors.AsType[*RunningError](got[i]); !ok {
			t.Errorf("a loser got %v", got[i])
		}
	}
	if won != 1 {
		t.Errorf("%d of %d have the socket", won, n)
	}
}

func TestListenReplacesOnlyDeadSockets(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string // part of the error, empty for success
	}{
		{"a dead agent's socket", leaveSocket, ""},
		{"a socket that is alive, without a lock", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "in use by process"},
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a symbolic link to a dead socket", func(t *testing.T, path string) {
			leaveSocket(t, path+"-target")
			if err := os.Symlink(path+"-target", path); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a symbolic link to nothing", func(t *testing.T, path string) {
			if err := os.Symlink(path+"-target", path); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a symbolic link for a lock", func(t *testing.T, path string) {
			if err := os.Symlink(path+"-target", path+lockSuffix); err != nil {
				t.Fatal(err)
			}
		}, "lock"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s.sock")
			test.make(t, socket)
			before, _ := os.Lstat(socket)
			l, err := Listen(t.Context(), socket)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if after, _ := os.Lstat(socket); before != nil && !os.SameFile(before, after) {
				t.Error("what was there is gone")
			}
		})
	}
}
