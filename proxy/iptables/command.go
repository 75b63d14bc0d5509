package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inNamespace runs fn in a network namespace, given as a file descriptor; 0 is the calling thread's.
// Processes that fn starts stay there.
func inNamespace(fd int, fn func() error) error {
	if fd == 0 {
		return fn()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// commandError is a command that ended with an error.
type commandError struct {
	command string
	stderr  string
	err     error
}

func (e *commandError) Error() string {
	text := strings.Join(strings.Fields(e.stderr), " ")
	if text == "" {
		return fmt.Sprintf("%s: %v", e.command, e.err)
	}
	return fmt.Sprintf("%s: %v: %s", e.command, e.err, text)
}

func (e *commandError) Unwrap() error { return e.err }

// status is the exit status of the command, -1 if it did not get to one.
func (e *commandError) status() int {
	var exit *exec.ExitError
	if errors.As(e.err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// maxStderr bounds what is kept of the messages of a command.
const maxStderr = 4096

// limited keeps the beginning of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(maxStderr-l.Len(), 0))])
	return len(p), nil
}

// run runs a command in a network namespace. input writes its standard input, output reads its
// standard output; both may be nil. A command that ends before it has read all is judged by its end alone.
func run(ctx context.Context, netns int, input func(io.Writer) error, output func(io.Reader) error, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	var stderr limited
	cmd.Stderr = &stderr
	var in io.WriteCloser
	var out io.ReadCloser
	var err error
	if input != nil {
		if in, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	if output != nil {
		if out, err = cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	if err := inNamespace(netns, cmd.Start); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	if in != nil {
		err = input(in)
		if errors.Is(err, syscall.EPIPE) {
			err = nil
		}
		in.Close()
	}
	if out != nil && err == nil {
		err = output(out)
	}
	if out != nil && err != nil {
		out.Close() // so that the command does not wait for a reader
	}
	if ended := cmd.Wait(); ended != nil && err == nil {
		err = &commandError{command: path + " " + strings.Join(args, " "), stderr: stderr.String(), err: ended}
	}
	return err
}
