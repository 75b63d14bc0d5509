// Package tempdir makes temporary directories that do not outlive their process for
// long: what one leaves that was killed is removed by the next.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is held in each directory while its process lives.
const lockFile = ".lock"

// fresh is how young a directory is left alone: it may be about to be locked.
const fresh = time.Minute

// Dir is a temporary directory.
type Dir struct {
	Path string
	lock *os.File
}

// New makes a directory whose name begins with a prefix, and removes those with it that dead processes have left.
func New(prefix string) (*Dir, error) {
	removeStale(prefix, time.Now())
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	lock, _, err := tryLock(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Dir{path, lock}, nil
}

// Close removes the directory.
func (d *Dir) Close() error { return errors.Join(os.RemoveAll(d.Path), d.lock.Close()) }

// removeStale does what it can: some directories are another user's.
func removeStale(prefix string, now time.Time) {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < fresh {
			continue
		}
		if lock, held, err := tryLock(path); err == nil && !held {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

// tryLock locks a directory, unless another process holds it.
func tryLock(path string) (lock *os.File, held bool, err error) {
	if lock, err = os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	switch err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return lock, false, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, true, lock.Close()
	}
	return nil, false, errors.Join(fmt.Errorf("lock %s: %w", path, err), lock.Close())
}
