package cmd

import (
	"log/slog"

	"github.com/urfave/cli/v2"

	"sluice/agent"
	"sluice/agent/config"
)

// Agent is the daemon.
func Agent() *cli.Command {
	flags := newConfigFlags()
	return &cli.Command{
		Name:      "agent",
		Usage:     "run the proxy on this node until it is stopped",
		UsageText: "sluice agent --manifests DIR [options]",
		Description: "Programs the kernel and keeps it as the Services and EndpointSlices say. Needs root (CAP_NET_ADMIN).\n" +
			"The rules stay when the agent stops, and so does the traffic; \"sluice cleanup\" removes them.\n\n" +
			"Every flag can also be set by an environment variable (--cluster-cidr: SLUICE_CLUSTER_CIDR) and in\n" +
			"the configuration file (cluster-cidr: 10.42.0.0/16). The command line is stronger than the\n" +
			"environment, and that is stronger than the file.\n\n" +
			"Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failure, 2 wrong arguments or configuration.\n\n" +
			"Examples:\n" +
			"   sluice agent --manifests /etc/sluice/manifests\n" +
			"   sluice agent --manifests ./examples --hostname-override node1 --cluster-cidr 10.42.0.0/16,fd42::/56\n" +
			"   SLUICE_LOG_LEVEL=debug sluice agent --config ./sluice.yaml",
		Flags: flags.and(),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			if err := cfg.Validate(); err != nil {
				return usageError(err)
			}
			log := newLogger(c, cfg)
			for _, w := range warnings {
				log.Warn(w)
			}
			return agent.Run(c.Context, cfg, log)
		},
	}
}

// newLogger logs to standard error, where systemd and container runtimes look for it.
func newLogger(c *cli.Context, cfg config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(c.App.ErrWriter, options))
	}
	return slog.New(slog.NewTextHandler(c.App.ErrWriter, options))
}
