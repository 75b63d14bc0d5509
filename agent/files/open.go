package files

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// quietTime is how long a file must have been left alone before it is read, where
// it cannot be told whether it is open for writing.
const quietTime = 200 * time.Millisecond

// busyRetry is how soon a file that is open for writing is looked at again, for
// the case that no event tells of its closing.
const busyRetry = 100 * time.Millisecond

var errEmpty = errors.New("the file is empty: fill it, or remove it to remove what it described")

// open opens a file for reading if it is a regular file that nobody is writing.
// The result has its fileID then, and else says why there is no file.
func open(dir *os.File, f *file) (*os.File, readResult) {
	// O_NONBLOCK: what became a FIFO since it was found must not hold us up.
	fd, err := unix.Openat(int(dir.Fd()), f.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, readResult{gone: true}
	case errors.Is(err, unix.EACCES):
		return nil, readResult{err: errors.New("open the file: permission denied: make it readable for the user that runs this agent")}
	case err != nil:
		return nil, readResult{err: fmt.Errorf("open the file: %w", err)}
	}
	in := os.NewFile(uintptr(fd), f.name)
	result := f.check(in)
	if result.busy || result.err != nil {
		in.Close()
		return nil, result
	}
	return in, result
}

// check looks at an open file before it is read.
func (f *file) check(in *os.File) readResult {
	var st unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &st); err != nil {
		return readResult{err: fmt.Errorf("look at the file: %w", err)}
	}
	if !isRegular(&st) {
		return readResult{err: notRegular(&st)}
	}
	result := readResult{id: idOf(&st)}
	busy, known := writers(in)
	switch wait := time.Duration(0); {
	case known && busy:
		result.busy, result.wait = true, busyRetry
	case !known:
		if wait = f.quiet(result.id, time.Now()); wait > 0 {
			result.busy, result.wait = true, wait
		}
	}
	if !result.busy && st.Size == 0 {
		result.err = errEmpty
	}
	return result
}

// quiet returns how long a version of the file has still to stay as it is before it
// counts as complete.
func (f *file) quiet(id fileID, now time.Time) time.Duration {
	if now.Sub(time.Unix(0, max(id.mtime, id.ctime))) >= quietTime {
		return 0
	}
	// It is young, or its filesystem's clock goes ahead of ours.
	if f.seen != id {
		f.seen, f.seenAt = id, now
	}
	return max(0, quietTime-now.Sub(f.seenAt))
}

// verify tells whether a file that was read is still as it was when it was opened.
func verify(in *os.File, id fileID) readResult {
	result := readResult{id: id}
	var st unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &st); err != nil {
		result.err = fmt.Errorf("look at the file: %w", err)
		return result
	}
	busy, known := writers(in)
	if result.busy = busy && known || idOf(&st) != id; result.busy {
		result.wait = busyRetry
	}
	return result
}
