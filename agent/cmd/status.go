package cmd

import (
	"errors"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"sluice/agent/status"
)

// Status shows how the agent is.
func Status() *cli.Command {
	flags := newConfigFlags("socket", "config")
	output := outputFlag("json or yaml; a text for people without", "json", "yaml")
	return &cli.Command{
		Name:      "status",
		Usage:     "show how the agent is",
		UsageText: "sluice status [-o json|yaml]",
		Description: "Asks the running agent on its socket.\n\n" +
			"Exit codes: 0 healthy, 1 not healthy or no answer, 2 wrong arguments, 3 no\n" +
			"agent is running.\n\n" +
			"Examples:\n" +
			"   sluice status\n" +
			"   sluice status -o json | jq .families",
		Flags: flags.and(output),
		Action: showAnswer(output,
			func(c *cli.Context) (s status.Status, err error) {
				client, err := newClient(flags)
				if err != nil {
					return s, err
				}
				return client.Status(c.Context)
			},
			func(s *status.Status, w io.Writer) error { return s.Write(w, time.Now()) },
			func(s *status.Status) bool { return !s.Healthy }),
	}
}

// newClient makes a client for the socket that the flags, the environment and the
// configuration file name.
func newClient(flags configFlags) (status.Client, error) {
	cfg, _, err := flags.load() // the agent logs the warnings
	return status.Client{Socket: cfg.Socket}, err
}

// askError gives an error of a status.Client its exit code.
func askError(err error) error {
	if _, ok := errors.AsType[*status.NotRunningError](err); ok {
		return &exitError{exitNotRunning, err}
	}
	return err
}
