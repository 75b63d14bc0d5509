package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockSuffix is appended to the socket's path for the file whose lock an agent
// holds while it lives. The kernel lets go of the lock when the process ends, so
// that a socket without a lock is known to be left over, with no race between two
// agents that start at once.
const lockSuffix = ".lock"

// RunningError says that another agent has the socket.
type RunningError struct {
	Socket string
	// PID is the other agent's process, 0 if that cannot be told.
	PID int
}

func (e *RunningError) Error() string {
	who := ""
	if e.PID != 0 {
		who = fmt.Sprintf(" (pid %d)", e.PID)
	}
	return fmt.Sprintf("another sluice agent%s is running on %s; stop it first", who, e.Socket)
}

// Listener is the status socket. Close removes the socket and gives up the claim.
type Listener struct {
	net.Listener
	lock *os.File
}

// Lock is the path of the file that the claim is held by. Close leaves it.
func (l *Listener) Lock() string { return l.lock.Name() }

// Close implements net.Listener.
func (l *Listener) Close() error {
	err := l.Listener.Close() // removes the socket before another agent can have the lock
	return errors.Join(ignoreClosed(err), ignoreClosed(l.lock.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Listen claims path for this agent and opens the socket there, for root and its
// group only. It makes the directory if there is none. It replaces the socket of an
// agent that is gone, and nothing else: not a file of another kind, not a symbolic
// link. While another agent lives it returns a *RunningError.
func Listen(ctx context.Context, path string) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the status socket: %w", err)
	}
	lock, err := os.OpenFile(path+lockSuffix, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the status socket: %w", err)
	}
	l, err := listen(ctx, path, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Listener{l, lock}, nil
}

func listen(ctx context.Context, path string, lock *os.File) (net.Listener, error) {
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &RunningError{path, peerPID(ctx, path)}
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}

	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look for an old status socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket; remove it, or choose another --socket", path)
	default:
		// Without the lock it can still be someone's who knows nothing of locks.
		if pid := peerPID(ctx, path); pid != 0 {
			return nil, fmt.Errorf("%s is in use by process %d; stop it, or choose another --socket", path, pid)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the old status socket: %w", err)
		}
	}

	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Before bind, so that there is no moment at which others can connect. The umask
		// takes bits away but adds none.
		var chmodErr error
		if err := c.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o660) }); err != nil {
			return err
		}
		return chmodErr
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the status socket: %w", err)
	}
	if err := allowGroup(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open the status socket to its group: %w", err), l.Close())
	}
	return l, nil
}

// allowGroup opens a socket to its group. Who can write to the directory could have put a symbolic link in its place meanwhile,
// to a file that is for root alone.
func allowGroup(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s was replaced by something else; the directory must be for root alone", path)
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o660) // fchmod takes no descriptor of O_PATH
}

// peerPID returns the process that listens on a unix socket, 0 if there is none
// or it lives outside this PID namespace.
func peerPID(ctx context.Context, path string) int {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return 0
	}
	defer conn.Close()
	cred, err := listenerOf(conn)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// listenerOf tells who called listen(2) for the other end of a connection, see SO_PEERCRED in unix(7).
func listenerOf(conn net.Conn) (cred *unix.Ucred, err error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(failed, err)
}
