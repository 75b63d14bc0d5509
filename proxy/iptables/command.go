package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sluice/proxy/netns"
)

// CommandError is a command that ended with an error.
type CommandError struct {
	Command string
	// Stderr is the beginning of what it wrote there.
	Stderr string
	Err    error
}

func (e *CommandError) Error() string {
	text := strings.Join(strings.Fields(e.Stderr), " ")
	if text == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, text)
}

func (e *CommandError) Unwrap() error { return e.Err }

// status is the exit status of the command, -1 if it did not get to one.
func (e *CommandError) status() int {
	var exit *exec.ExitError
	if errors.As(e.Err, &exit) {
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

const (
	// runLimit is the longest that a program may take in any case.
	runLimit = 2 * time.Minute
	// endLimit is how long the pipes of a program that was killed may stay open: a child of it can hold them.
	endLimit = time.Second
)

// Run runs a command in the network namespace of a file descriptor; 0 is the calling thread's. input writes its
// standard input, output reads its standard output; both may be nil. A command that ends before it has read all is
// judged by its end alone: the error is a *CommandError then. It is killed when the context ends, and after two
// minutes in any case.
func Run(ctx context.Context, ns int, input func(io.Writer) error, output func(io.Reader) error, path string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = endLimit
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
	started := time.Now()
	if err := netns.Do(ns, cmd.Start); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	// Only Wait minds WaitDelay; before it a pipe that is held open would be waited for.
	defer context.AfterFunc(ctx, func() {
		for _, pipe := range []io.Closer{in, out} {
			if pipe != nil {
				pipe.Close()
			}
		}
	})()
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
	ended := cmd.Wait()
	if cut := ctx.Err(); cut != nil {
		return &CommandError{path + " " + strings.Join(args, " "), stderr.String(),
			fmt.Errorf("it was killed after %v: %w", time.Since(started).Round(time.Millisecond), cut)}
	}
	if ended != nil && err == nil {
		err = &CommandError{path + " " + strings.Join(args, " "), stderr.String(), ended}
	}
	return err
}
