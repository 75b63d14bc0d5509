package files

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watchMask names the events that can mean that a manifest changed: it was closed
// after writing, came, went, or became readable (inotify(7)).
const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// maxWatches bounds the directories that are watched. What links lead to beyond
// that is found by the slow poll.
const maxWatches = 128

// watcher tells of events in directories, by inotify.
type watcher struct {
	inotify *os.File
	watched map[string]int // the watch descriptor of each directory
	// C gets a value after events; several events may give one.
	C chan struct{}
	// done is closed when no more events come.
	done chan struct{}
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	w := &watcher{
		inotify: os.NewFile(uintptr(fd), "inotify"),
		watched: make(map[string]int),
		C:       make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	go w.read()
	return w, nil
}

// read turns events into values of C until the watcher is closed. Which events
// they are does not matter: a look at the directory tells what changed.
func (w *watcher) read() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		if _, err := w.inotify.Read(buf); err != nil {
			return
		}
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

// watch makes dirs the directories that are watched. Those that are watched are
// named again, as another directory may have come to be under the same name. It
// tells whether that was so anywhere: what happened there before is not known.
func (w *watcher) watch(dirs []string) (added bool, err error) {
	watched := make(map[string]int, len(dirs))
	inUse := make(map[int]bool, len(dirs))
	for _, dir := range dirs {
		if len(watched) >= maxWatches {
			break
		}
		fd, e := w.add(dir)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("watch %s: %w", dir, e))
			continue
		}
		if was, known := w.watched[dir]; !known || was != fd {
			added = true
		}
		watched[dir] = fd
		inUse[fd] = true
	}
	for _, fd := range w.watched {
		if !inUse[fd] {
			// It fails where the kernel removed the watch because the directory is gone.
			_ = w.control(func(inotify int) error {
				_, err := unix.InotifyRmWatch(inotify, uint32(fd))
				return err
			})
		}
	}
	w.watched = watched
	return added, err
}

func (w *watcher) add(dir string) (fd int, err error) {
	err = w.control(func(inotify int) error {
		fd, err = unix.InotifyAddWatch(inotify, dir, watchMask)
		return err
	})
	return fd, err
}

func (w *watcher) control(f func(inotify int) error) error {
	conn, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	if ctlErr := conn.Control(func(fd uintptr) { err = f(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}

// close ends the watcher and waits for its goroutine.
func (w *watcher) close() {
	_ = w.inotify.Close()
	<-w.done
}
