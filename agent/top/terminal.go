package top

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// IsTerminal tells whether a file is a terminal that can move its cursor.
func IsTerminal(f *os.File) bool {
	_, err := mode(f)
	return err == nil && os.Getenv("TERM") != "dumb"
}

// control calls fn with a file's descriptor, which stays as it is: os.File.Fd would make reads block that Close is to end.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func mode(f *os.File) (m *unix.Termios, err error) {
	err = control(f, func(fd int) (err error) {
		m, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return m, err
}

// setMode uses one of the requests TCSETS... of ioctl_tty(2).
func setMode(f *os.File, request uint, m *unix.Termios) error {
	return control(f, func(fd int) error { return unix.IoctlSetTermios(fd, request, m) })
}

// terminal is one that is taken over: its other screen, without a cursor, and what is typed comes at once. Signals
// come from the keyboard as ever.
type terminal struct {
	keys, out *os.File // keys is nil if nothing can be typed

	mu    sync.Mutex
	taken bool
	saved unix.Termios
}

// The sequences are xterm's; terminals that lack one pass over it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"               // other screen, no cursor, no line break at the right edge
	leaveScreen = "\x1b[m\x1b[999;1H\r\n\x1b[?7h\x1b[?25h\x1b[?1049l" // where there is one screen, what follows stands below the table
)

// take takes the terminal over.
func (t *terminal) take() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken {
		return nil
	}
	if t.keys != nil {
		m, err := mode(t.keys)
		if err != nil {
			return fmt.Errorf("read the terminal's mode: %w", err)
		}
		t.saved = *m
		m.Lflag &^= unix.ECHO | unix.ICANON
		m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 1, 0
		if err := setMode(t.keys, unix.TCSETS, m); err != nil {
			return fmt.Errorf("set the terminal's mode: %w", err)
		}
	}
	t.taken = true
	if _, err := t.out.WriteString(enterScreen); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// giveBack makes the terminal what it was. It is harmless a second time, and when the terminal is gone.
func (t *terminal) giveBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		return
	}
	t.taken = false
	_, _ = t.out.WriteString(leaveScreen)
	if t.keys != nil {
		_ = setMode(t.keys, unix.TCSETSF, &t.saved) // what was typed and not read goes
	}
}

// guard is deferred in every goroutine: a panic is told on a terminal that can be read.
func (t *terminal) guard() {
	if p := recover(); p != nil {
		t.giveBack()
		panic(p)
	}
}

// size is in columns and lines. One that does not know, like a serial line, has 80 and 24.
func (t *terminal) size() (width, height int) {
	var w *unix.Winsize
	err := control(t.out, func(fd int) (err error) {
		w, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}
