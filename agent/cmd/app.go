// Package cmd holds the commands of sluice, one file each.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"sluice/agent/status"
	"sluice/agent/version"
)

// The exit codes of all commands. They are documented in docs/cli.md.
const (
	exitOK         = 0
	exitFailure    = 1 // the command failed; `sluice status`: the agent is not healthy
	exitUsage      = 2 // wrong arguments or configuration: the same command will fail again
	exitNotRunning = 3 // no agent to ask
)

// exitError is an error with an exit code. An empty message prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageError(err error) error { return &exitError{exitUsage, err} }

// Main runs the command that args (os.Args) name and returns the exit code. The
// first SIGINT or SIGTERM ends the command in good order, a second one at once.
func Main(commands []*cli.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from here on signals kill
	return run(ctx, commands, args, os.Stdout, os.Stderr)
}

func run(ctx context.Context, commands []*cli.Command, args []string, stdout, stderr io.Writer) int {
	for _, c := range commands {
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return flagError(c, err) }
	}
	cli.HelpPrinter = printHelp
	var notFound error // what "sluice help" was asked about
	app := &cli.App{
		Name:  "sluice",
		Usage: "a Kubernetes node's Service proxy for small machines",
		Description: "sluice does kube-proxy's job: it programs the kernel so that packets to\n" +
			"Services reach their endpoints. \"sluice agent\" is the daemon; the other\n" +
			"commands ask it or clean up after it.\n\n" +
			"Exit codes: 0 success, 1 failure, 2 wrong arguments or configuration,\n" +
			"3 no agent is running. \"sluice check\" counts failures.\n\n" +
			"Examples:\n" +
			"   sluice agent --manifests DIR        route the Services in these files\n" +
			"   sluice status                       see how the agent is\n" +
			"   sluice get endpoints web -n shop    see where one Service's packets go",
		Version:         version.Get().Version,
		Commands:        commands,
		Writer:          stdout,
		ErrWriter:       stderr,
		OnUsageError:    func(_ *cli.Context, err error, _ bool) error { return flagError(nil, err) },
		CommandNotFound: func(_ *cli.Context, name string) { notFound = unknownCommand(commands, name) },
		ExitErrHandler:  func(*cli.Context, error) {}, // run prints the error and chooses the code
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(commands, c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	if n := len(args); n > 1 && args[n-1] == completionFlag {
		writeCandidates(app, args[1:n-1])
		return exitOK
	}
	ordered, err := flagsFirst(commands, args)
	if err != nil {
		err = usageError(err)
	} else {
		err = app.RunContext(ctx, ordered)
	}
	if err == nil {
		err = notFound
	}
	if err == nil {
		return exitOK
	}
	code := exitFailure
	// Errors of others may have an ExitCode, too, such as those of programs that were run.
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	if message := err.Error(); message != "" {
		for line := range strings.SplitSeq(message, "\n") {
			fmt.Fprintln(stderr, "sluice:", status.Printable(line))
		}
	}
	if code == exitUsage && err.Error() != "" { // of check, 2 without a message is a number of failures
		name := ""
		if len(args) > 1 {
			if c := find(commands, args[1]); c != nil {
				name = c.Name + " "
			}
		}
		fmt.Fprintf(stderr, "See \"sluice %s--help\".\n", name)
	}
	return code
}
