package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writers tells whether some process has f open for writing. It is known only
// where the filesystem has leases and this process may take one (it owns the file
// or has CAP_LEASE, fcntl(2)).
//
// A read lease is granted only while no one has the file open for writing. It is
// given back at once: kept, it would hold up the next writer's open(2).
func writers(f *os.File) (busy, known bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	ctlErr := conn.Control(func(fd uintptr) {
		if _, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	switch {
	case ctlErr != nil:
		return false, false
	case err == nil:
		return false, true
	}
	return true, errors.Is(err, unix.EAGAIN)
}
