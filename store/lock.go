package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errLocked     = errors.New("another process has the file locked")
	errNotRegular = errors.New("it is not a regular file")
)

// openLocked opens a regular file, never through a symbolic link at its end, and locks it as
// bbolt does (flock). It waits for another process' lock until the timeout.
func openLocked(path string, flags int, timeout time.Duration) (*os.File, error) {
	deadline := time.Now().Add(timeout)
	for {
		f, err := tryOpen(path, flags)
		if err == nil || !errors.Is(err, errLocked) || time.Now().After(deadline) {
			return f, err
		}
		time.Sleep(min(timeout, 20*time.Millisecond))
	}
}

func tryOpen(path string, flags int) (*os.File, error) {
	// A device or FIFO is not opened at all.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w (%s): %s", errNotRegular, info.Mode().Type(), path)
	}
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, flags); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func lock(f *os.File, flags int) error {
	how := unix.LOCK_SH
	if flags&os.O_RDWR != 0 {
		how = unix.LOCK_EX
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s", errLocked, f.Name())
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w (%s): %s", errNotRegular, info.Mode().Type(), f.Name())
	}
	// Who had the lock before may have put another file in its place (compact, moveAside).
	if now, err := os.Lstat(f.Name()); err != nil || !os.SameFile(info, now) {
		return fmt.Errorf("%w: %s was replaced", errLocked, f.Name())
	}
	if info.Mode().Perm()&0o077 != 0 && flags&os.O_RDWR != 0 {
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("make %s private: %w", f.Name(), err)
		}
	}
	return nil
}
