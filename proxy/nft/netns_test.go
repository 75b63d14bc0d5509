package nft

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// netns is a network namespace that lives as long as the test.
type netns struct {
	t  testing.TB
	fd int
}

func newNetNS(t testing.TB) netns {
	t.Helper()
	type result struct {
		fd  int
		err error
	}
	made := make(chan result)
	go func() {
		// The thread is never unlocked, so that it ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{0, err}
			return
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		made <- result{fd, err}
	}()
	r := <-made
	if r.err != nil {
		t.Fatalf("make a network namespace (run as root, or under `unshare -rn`): %v", r.err)
	}
	t.Cleanup(func() { unix.Close(r.fd) })
	return netns{t, r.fd}
}

// try runs a command in the namespace.
func (n netns) try(args ...string) (string, error) {
	self := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), n.fd)
	out, err := exec.Command("nsenter", append([]string{self, "--"}, args...)...).CombinedOutput()
	return string(out), err
}

func (n netns) run(args ...string) string {
	n.t.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}
