// Package netns runs code in network namespaces, on threads of its own.
package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs fn in the network namespace of a file descriptor; 0 is the calling thread's. Processes that fn
// starts stay there.
func Do(fd int, fn func() error) error {
	if fd == 0 {
		return fn()
	}
	return OnThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// OfThread opens the network namespace of the calling thread, which need not be the process's.
func OfThread() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// OnThread runs fn on a thread that nothing else uses meanwhile and puts its network
// namespace back. Where that fails the thread ends with the goroutine.
func OnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := OfThread()
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
