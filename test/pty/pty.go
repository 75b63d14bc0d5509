// Package pty is a terminal for tests of programs that draw on one.
package pty

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudoterminal, and a screen that shows what programs write to it.
type Terminal struct {
	t *testing.T
	// Slave is the side that programs use.
	Slave  *os.File
	master *os.File

	mu     sync.Mutex
	screen screen
	ended  chan struct{}
}

// New opens one of this size, until the test ends.
func New(t *testing.T, width, height int) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Terminal{t: t, master: master, ended: make(chan struct{})}
	number := 0
	p.control(func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	if p.Slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	p.Resize(width, height)
	go p.read()
	t.Cleanup(func() {
		p.Slave.Close()
		p.master.Close()
		<-p.ended
	})
	return p
}

func (p *Terminal) control(fn func(fd int) error) {
	p.t.Helper()
	raw, err := p.master.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil || failed != nil {
		p.t.Fatal(err, failed)
	}
}

func (p *Terminal) read() {
	defer close(p.ended)
	b := make([]byte, 4096)
	for {
		n, err := p.master.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.screen.write(b[:n])
		p.mu.Unlock()
	}
}

// Resize gives the terminal another size. The kernel tells its programs.
func (p *Terminal) Resize(width, height int) {
	p.t.Helper()
	p.mu.Lock()
	p.screen.resize(width, height)
	p.mu.Unlock()
	p.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)})
	})
}

// Own makes the terminal standard input, output and error of a command that is not started yet, and controls it.
func (p *Terminal) Own(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Slave, p.Slave, p.Slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 0
}

// Type sends keys.
func (p *Terminal) Type(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// Lines are what the screen shows, without blanks at the ends of lines.
func (p *Terminal) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.lines()
}

// Await waits until the screen's text, its lines joined by newlines, is as wanted, and returns its lines.
func (p *Terminal) Await(within time.Duration, what string, wanted func(text string) bool) []string {
	p.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		lines := p.Lines()
		if wanted(strings.Join(lines, "\n")) {
			return lines
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not within %v; the screen shows\n%s", what, within, strings.Join(lines, "\n"))
		}
	}
}

// Written is how many bytes programs have written.
func (p *Terminal) Written() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.written
}

// State is what a program has to leave as it was: the terminal's mode, and whether the other screen is shown or the cursor hidden.
type State struct {
	Mode         unix.Termios
	Other        bool
	HiddenCursor bool
	NoWrap       bool
}

// State tells the present state.
func (p *Terminal) State() (s State) {
	p.t.Helper()
	p.control(func(fd int) error {
		m, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			s.Mode = *m
		}
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Other, s.HiddenCursor, s.NoWrap = p.screen.modes["1049"], p.screen.modes["hidden"], p.screen.modes["nowrap"]
	return s
}

// AwaitState waits until the state is this one.
func (p *Terminal) AwaitState(within time.Duration, want State) {
	p.t.Helper()
	for deadline := time.Now().Add(within); p.State() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the terminal is left in another state: %+v, want %+v", p.State(), want)
		}
	}
}
