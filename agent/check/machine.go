package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/status"
)

// machine looks at the clock, the cache's directory, the socket and the ports.
func (l *looker) machine() []Item {
	return append([]Item{l.clock(), l.cache(), l.socket()}, l.ports()...)
}

// socket asks at --socket whether an agent runs already.
func (l *looker) socket() Item {
	info, err := os.Lstat(l.Config.Socket)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = fmt.Errorf("%s is not a socket", l.Config.Socket)
		return judgeSocket(l.Config.Socket, 0, err)
	}
	s, err := status.Client{Socket: l.Config.Socket}.Status(l.ctx)
	return judgeSocket(l.Config.Socket, s.PID, err)
}

// judgeSocket is about the status socket; pid is the agent that answered.
func judgeSocket(path string, pid int, err error) Item {
	const name = "status socket"
	_, none := errors.AsType[*status.NotRunningError](err)
	switch {
	case err == nil:
		return ok(name, "an agent runs (pid %d)", pid)
	case none:
		return ok(name, "no agent runs at %s", path)
	case errors.Is(err, fs.ErrPermission):
		return unseen(name, err)
	}
	return fail(name, "remove what is there, or set --socket", "%s", oneLine(err.Error()))
}

// clock reads what there is to tell whether the time is right.
func (l *looker) clock() Item {
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx) // modes 0: it only reads
	synced := err == nil && state != unix.TIME_ERROR && tx.Status&unix.STA_UNSYNC == 0
	_, err = os.Stat("/dev/rtc0")
	installed := time.Time{}
	if exe, err := os.Stat("/proc/self/exe"); err == nil {
		installed = exe.ModTime()
	}
	return judgeClock(l.Now, installed, synced, err == nil)
}

// released is a time before which no version of this program existed.
var released = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// judgeClock is about machines without a clock that runs while they are off: with a wrong
// time no certificate is valid. installed is when this program was written to the disk.
func judgeClock(now, installed time.Time, synced, hardware bool) Item {
	const name = "clock"
	remedy := "let an NTP client set it: timedatectl set-ntp true (systemd), rc-service chronyd start (OpenRC)"
	switch {
	case now.Before(released):
		return fail(name, remedy, "%s is before this program existed: the API server's certificate is not valid yet", now.UTC().Format(time.DateTime))
	case now.Add(24 * time.Hour).Before(installed):
		return fail(name, remedy, "%s is before this program was installed (%s)", now.UTC().Format(time.DateTime), installed.UTC().Format(time.DateOnly))
	case !synced && !hardware:
		return warn(name, remedy, "it is not synchronised, and the machine has no clock that runs while it is off")
	case !synced:
		return warn(name, remedy, "it is not synchronised")
	}
	return ok(name, "synchronised")
}

// directory is what was seen of the cache's directory.
type directory struct {
	path string
	// made is path, or the nearest directory above that exists.
	made     string
	writable bool
	inMemory bool
	free     uint64 // bytes
	err      error
}

// cache looks at --data-dir.
func (l *looker) cache() Item {
	d := directory{path: l.Config.DataDir, made: l.Config.DataDir}
	for {
		info, err := os.Stat(d.made)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", d.made)
		}
		if errors.Is(err, fs.ErrNotExist) && d.made != "/" {
			d.made = filepath.Dir(d.made)
			continue
		}
		d.err = err
		break
	}
	var st unix.Statfs_t
	if d.err == nil {
		d.err = unix.Statfs(d.made, &st)
	}
	d.free = st.Bavail * uint64(st.Bsize)
	d.inMemory = uint32(st.Type) == unix.TMPFS_MAGIC || uint32(st.Type) == unix.RAMFS_MAGIC
	d.writable = unix.Access(d.made, unix.W_OK) == nil && st.Flags&unix.ST_RDONLY == 0
	return judgeCache(d, os.Geteuid() == 0)
}

// The least free space: a cache of 10,000 Services takes some 30 MB, and bbolt needs room beside.
const (
	spaceLow   = 128 << 20
	spaceEmpty = 16 << 20
)

// judgeCache is about the directory of the cache, which the node is served from until the API server answers.
func judgeCache(d directory, root bool) Item {
	name := "cache directory"
	switch {
	case d.err != nil:
		return fail(name, "make it a directory, or set --data-dir", "%v", d.err)
	case !d.writable && !root:
		return unseen(name, fmt.Errorf("%s is not writable for this user", d.made))
	case !d.writable:
		return warn(name, "set --data-dir to a file system that can be written", "%s cannot be written: after a restart nothing is served until the API server answers", d.made)
	case d.inMemory:
		return warn(name, "set --data-dir to a disk", "%s is in memory: after a start of the machine nothing is served until the API server answers", d.made)
	case d.free < spaceEmpty:
		return fail(name, "make room, or set --data-dir", "%d MB are free at %s", d.free>>20, d.made)
	case d.free < spaceLow:
		return warn(name, "make room, or set --data-dir", "%d MB are free at %s", d.free>>20, d.made)
	case d.made != d.path:
		return ok(name, "sluice agent makes %s, %d MB are free", d.path, d.free>>20)
	}
	return ok(name, "%s, %d MB are free", d.path, d.free>>20)
}
