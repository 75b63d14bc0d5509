package cmd

import (
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"sluice/agent/check"
	"sluice/agent/top"
)

// maxFailures is the largest exit code of check: shells use those above.
const maxFailures = 125

// Check says what keeps the agent from working on this machine.
func Check() *cli.Command {
	flags := newConfigFlags() // all, so that it can be given what the agent is
	output := outputFlag("json or yaml; a text for people without", "json", "yaml")
	return &cli.Command{
		Name:      "check",
		Usage:     "look for what keeps the agent from working on this machine",
		UsageText: "sluice check [-o json|yaml] [options]",
		Description: "Tries the features of the kernel that are needed, and looks at its\n" +
			"parameters, at the rules of other programs, at the API server and at the\n" +
			"machine. Each thing has a line with ok, warn or fail, and a remedy below if\n" +
			"it is not ok. Changes nothing. Without root it looks at what it can, and says\n" +
			"how much it could not. It takes the options of \"sluice agent\", whose\n" +
			"environment variables and configuration files it reads, too.\n\n" +
			"Exit codes: the number of failures, 125 at most; 0 with none. Wrong arguments\n" +
			"are 2, with a message.\n\n" +
			"Examples:\n" +
			"   sudo sluice check\n" +
			"   sluice check --manifests ./examples --hostname-override node\n" +
			"   sluice check -o json | jq '.items[] | select(.level != \"ok\")'",
		Flags: flags.and(output),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			if err := checkValue(output); err != nil {
				return err
			}
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			if err := cfg.Validate(); err != nil {
				return usageError(err)
			}
			warnings = append(warnings, cfg.WithoutEffect()...)
			r := check.Run(c.Context, check.Options{Config: cfg, Warnings: warnings, Root: "/", Now: time.Now()})
			err = show(c.App.Writer, output, r, func(w io.Writer) error { return r.Write(w, colourful(w)) })
			if err == nil && r.Failures > 0 {
				err = &exitError{code: min(r.Failures, maxFailures)} // the text has said why
			}
			return err
		},
	}
}

// colourful tells whether w is a terminal whose user has nothing against colours (no-color.org).
func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	return top.IsTerminal(f)
}
