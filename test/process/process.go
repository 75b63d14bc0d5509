// Package process runs the programs that tests and measurements are about.
package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sluice/test/lab"
)

// Process is a program that was started.
type Process struct {
	Cmd *exec.Cmd
	// Ended is closed when it has ended.
	Ended chan struct{}
}

// Start starts a command in a network namespace; nil is the caller's own. It is killed
// when this process ends without a clean-up.
func Start(ns *lab.Namespace, cmd *exec.Cmd) (*Process, error) {
	start := cmd.Start
	if ns != nil {
		start = func() error { return ns.Start(cmd) }
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // p.Cmd.ProcessState tells how it ended
		close(p.Ended)
	}()
	return p, nil
}

// End ends the process by a signal and waits for it. One that goes on for longer than limit is killed, with an error.
func (p *Process) End(signal syscall.Signal, limit time.Duration) error {
	_ = p.Cmd.Process.Signal(signal) // it may have ended by itself
	select {
	case <-p.Ended:
		return nil
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of signal %v", filepath.Base(p.Cmd.Path), limit, signal)
	}
}

// Kill ends the process at once and waits for it.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}
