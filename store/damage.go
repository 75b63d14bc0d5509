package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// damagedSuffix is added to the name of a file that cannot be used. There is one
// such file at most.
const damagedSuffix = ".damaged"

// moveAside keeps a file that cannot be used under another name, or removes it if that fails. It
// returns where the file is now.
func moveAside(path string) (string, error) {
	to := path + damagedSuffix
	moveErr := os.Rename(path, to)
	if moveErr == nil {
		return to, syncDir(path)
	}
	if err := os.Remove(path); err != nil {
		return path, fmt.Errorf("remove the damaged file: %w", err)
	}
	return fmt.Sprintf("nothing, it was removed (%v)", moveErr), syncDir(path)
}

// syncDir makes a change of names in path's directory lasting.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	defer dir.Close()
	// Some file systems (FAT, FUSE) cannot sync directories.
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}

// readOnly tells whether a file may still be readable although it cannot be written.
func readOnly(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

// is tells whether an error is, or says, what the kernel said: bbolt does not wrap all that it passes on.
func is(err error, errno unix.Errno) bool {
	return errors.Is(err, errno) || strings.HasSuffix(err.Error(), ": "+errno.Error())
}

// Remedy says what to do about an error of the file, like Stats.LastError.
func Remedy(err error) string {
	switch {
	case errors.Is(err, errLocked):
		return "stop the other process"
	case errors.Is(err, errNotRegular), is(err, unix.ELOOP), is(err, unix.EISDIR), is(err, unix.ENOTDIR):
		return "remove what is at the path, or configure another path"
	case is(err, unix.ENOSPC), is(err, unix.EDQUOT):
		return "free space on the file system"
	case is(err, unix.EROFS):
		return "mount the file system writable, or configure another path"
	case is(err, unix.EACCES), is(err, unix.EPERM):
		return "let this user write the directory and the file, or configure another path"
	case is(err, unix.EIO), errors.As(err, new(*panicError)):
		return "check the disk and the kernel's log"
	case is(err, unix.EMFILE), is(err, unix.ENFILE), is(err, unix.ENOMEM):
		return "give the process more file descriptors or memory"
	}
	return "see the error; it is tried again"
}
