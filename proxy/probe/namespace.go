package probe

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the wait for a new namespace. It takes a millisecond, but the kernel makes
// none while it is busy with the end of a large one, which can take many seconds.
const patience = 500 * time.Millisecond

// newNamespace makes a network namespace that is gone when the file is closed.
func newNamespace() (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	made := make(chan result, 1)
	go func() {
		var r result
		r.err = onOwnThread(func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			r.ns, err = threadNamespace()
			return err
		})
		made <- r
	}()
	select {
	case r := <-made:
		return r.ns, r.err
	case <-time.After(patience):
		go func() { // ends as soon as the kernel answers
			if r := <-made; r.ns != nil {
				r.ns.Close()
			}
		}()
		return nil, fmt.Errorf("make a network namespace: the kernel did not within %v", patience)
	}
}

// inNamespace runs fn inside a namespace: processes that it starts stay there.
func inNamespace(ns *os.File, fn func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return fn()
	})
}

// threadNamespace opens the network namespace of the calling thread, which need not be the process's.
func threadNamespace() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// onOwnThread runs fn on a thread that nothing else uses meanwhile and puts its network
// namespace back. Where that fails the thread ends with the goroutine.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := threadNamespace()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = fn()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
