package cmd

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
)

// Cleanup removes from the kernel what the agent wrote.
func Cleanup() *cli.Command {
	flags := newConfigFlags("socket", "config")
	return &cli.Command{
		Name:      "cleanup",
		Usage:     "remove the agent's rules from the kernel",
		UsageText: "sluice cleanup",
		Description: "Removes all that an agent wrote, of both IP families. Services are not\n" +
			"reachable then. Needs root (CAP_NET_ADMIN). Refuses while an agent runs: it\n" +
			"would write its rules again.\n\n" +
			"Exit codes: 0 nothing of sluice is left, 1 failure or an agent is running,\n" +
			"2 wrong arguments.\n\n" +
			"Examples:\n" +
			"   sluice cleanup",
		Flags: flags.and(),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			cfg, _, err := flags.load()
			if err != nil {
				return err
			}
			// With the socket claimed no agent can start meanwhile.
			claim, err := status.Listen(c.Context, cfg.Socket)
			if err != nil {
				return fmt.Errorf("clean up: %w", err)
			}
			defer claim.Close()
			var errs []error
			for _, f := range proxy.Families {
				if err := nft.Cleanup(c.Context, nft.Options{Family: f}); err != nil {
					errs = append(errs, fmt.Errorf("remove the %v rules: %w", f, err))
				}
			}
			if len(errs) > 0 {
				return errors.Join(errs...)
			}
			_, err = fmt.Fprintln(c.App.Writer, "sluice's rules are removed.")
			return err
		},
	}
}
