package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tableInput is what iptables-restore is to do in one table.
type tableInput struct {
	first   []string // rules, before all others
	chains  []string // that are made, or emptied
	rules   func(to *bufio.Writer)
	deleted []string // chains, which are emptied first
	last    []string // rules, behind all others
}

func (in *tableInput) empty() bool {
	return len(in.first)+len(in.chains)+len(in.deleted)+len(in.last) == 0
}

// writeInput writes the input of iptables-restore, without the tables that nothing is to be done in.
func writeInput(to io.Writer, tables *[tableCount]tableInput) error {
	out := bufio.NewWriterSize(to, 1<<16)
	for t := range tableCount {
		in := &tables[t]
		if in.empty() {
			continue
		}
		fmt.Fprintf(out, "*%s\n", t)
		for _, line := range in.first {
			fmt.Fprintln(out, line)
		}
		for _, names := range [...][]string{in.chains, in.deleted} {
			for _, name := range names {
				fmt.Fprintf(out, ":%s - [0:0]\n", name)
			}
		}
		if in.rules != nil {
			in.rules(out)
		}
		for _, name := range in.deleted {
			fmt.Fprintf(out, "-X %s\n", name)
		}
		for _, line := range in.last {
			fmt.Fprintln(out, line)
		}
		fmt.Fprintln(out, "COMMIT")
	}
	return out.Flush() // it keeps the first error
}

// restore runs iptables-restore once, for all tables. input writes its input, the same if it is called twice.
func (w *Writer) restore(ctx context.Context, input func(io.Writer) error) error {
	ctx, cancel := w.limited(ctx)
	defer cancel()
	args := []string{"--noflush", "-w", strconv.Itoa(w.opts.lockSeconds())}
	if !w.variant.restoreLocks() {
		lock, err := takeLock(ctx, w.opts.lockSeconds())
		if err != nil {
			return fmt.Errorf("write rules (%v): %w", w.opts.Family, err)
		}
		defer lock.Close()
		args = args[:1]
	}
	err := Run(ctx, w.opts.NetNS, input, nil, w.variant.Restore, args...)
	if err == nil {
		return nil
	}
	var failed *CommandError
	if errors.As(err, &failed) {
		if n, ok := failedLine(failed.Stderr); ok {
			f := lineFinder{number: n}
			_ = input(&f)
			if len(f.line) > 0 {
				err = fmt.Errorf("%w; line %d is: %s", err, n, f.line)
			}
		}
	}
	return fmt.Errorf("write rules (%v): %w", w.opts.Family, explain(err))
}

// errorLine finds the number of a line in the messages of iptables-restore.
var errorLine = regexp.MustCompile(`(?:line:? )(\d+)`)

func failedLine(stderr string) (int, bool) {
	m := errorLine.FindStringSubmatch(stderr)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}

// lineFinder keeps the line of a number of what is written to it.
type lineFinder struct {
	number int // lines still to come, up to the one that is looked for
	line   []byte
}

func (f *lineFinder) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && f.number > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if f.number == 1 {
			f.line = append(f.line, line...)
		}
		if ended {
			f.number--
		}
		rest = after
	}
	return len(p), nil
}

// The exit status of iptables and iptables-restore where the xtables lock, or another resource, was not to be had
// (RESOURCE_PROBLEM of xtables.h).
const resourceProblem = 4

// ErrLocked is part of errors where another program held the xtables lock for too long.
var ErrLocked = errors.New("another program holds the xtables lock (/run/xtables.lock) for too long: see which one with `fuser -v /run/xtables.lock`; it is tried again")

// explain adds cause and remedy to errors that a user can do something about.
func explain(err error) error {
	var ours *CommandError
	status := 0
	if errors.As(err, &ours) {
		status = ours.status()
	}
	if status != 0 {
		says := func(s string) bool { return strings.Contains(err.Error(), s) }
		switch {
		case status == resourceProblem && says("xtables lock"):
			return fmt.Errorf("%w: %w", ErrLocked, err)
		case says("Permission denied"), says("you must be root"), says("Operation not permitted"):
			return fmt.Errorf("%w; run as root or with CAP_NET_ADMIN and CAP_NET_RAW", err)
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w; was iptables removed? install the package iptables", err)
	}
	return err
}
