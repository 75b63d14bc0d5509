package cmd

import (
	"fmt"
	"log/slog"

	"github.com/urfave/cli/v2"

	"sluice/agent"
	"sluice/agent/config"
)

// Agent is the daemon.
func Agent() *cli.Command {
	flags := newConfigFlags()
	writeTo := &flag{name: "write-config-to", placeholder: "FILE",
		usage: "check the configuration, write the options of the command line and of the environment into this configuration file, and exit; other options in it stay"}
	dry := &flag{name: "dry-run", usage: "show what would be planned, and what of it the kernel does not have, and exit; nothing is changed"}
	return &cli.Command{
		Name:      "agent",
		Usage:     "run the proxy on this node until it is stopped",
		UsageText: "sluice agent [options]",
		Description: "Programs the kernel and keeps it as the Services and EndpointSlices say.\n" +
			"Needs root (CAP_NET_ADMIN). When the agent stops, the rules stay and traffic\n" +
			"goes on; \"sluice cleanup\" removes them. Kernel parameters that it sets, as\n" +
			"net.ipv4.ip_forward, stay until the machine starts next.\n\n" +
			"Objects come from the API server that a kubeconfig names (k3s's own is found\n" +
			"by itself), or from --manifests.\n\n" +
			"Every flag can also be set by an environment variable (--cluster-cidr by\n" +
			"SLUICE_CLUSTER_CIDR) and in the configuration file (cluster-cidr: CIDR). The\n" +
			"command line is stronger than the environment, and that is stronger than the\n" +
			"file.\n\n" +
			"Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failure, 2 wrong arguments or\n" +
			"configuration. With --dry-run: 0 nothing would change, 1 something would.\n\n" +
			"Examples:\n" +
			"   sluice agent --cluster-cidr 10.42.0.0/16\n" +
			"   sluice agent --manifests /etc/sluice/manifests\n" +
			"   sluice agent --manifests ./examples --cluster-cidr 10.42.0.0/16,fd42::/56\n" +
			"   SLUICE_LOG_LEVEL=debug sluice agent --config ./sluice.yaml",
		Flags: append(flags.and(), writeTo, dry),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			warnings = append(warnings, cfg.WithoutEffect()...)
			if writeTo.IsSet() {
				return writeConfig(c, flags, cfg, warnings, writeTo.last())
			}
			log := newLogger(c, cfg)
			for _, w := range warnings {
				log.Warn(w) // it may explain why the configuration is not valid
			}
			if err := cfg.Validate(); err != nil {
				return usageError(err)
			}
			if err := needNetAdmin(); err != nil {
				return err
			}
			if dry.on() {
				return dryRun(c, cfg)
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

// writeConfig checks the configuration as a whole and writes what the command line and the environment say of it. Unlike
// an agent that must serve, it refuses a variable that is misspelt: what it sets would be lost without a trace.
func writeConfig(c *cli.Context, flags configFlags, cfg config.Config, warnings []string, file string) error {
	sources := flags.sources()
	if unknown := sources.UnknownVariables(); len(unknown) > 0 {
		var known []string
		for _, o := range config.Options() {
			known = append(known, o.Env())
		}
		return usageError(fmt.Errorf("the environment variable %s sets no option%s", unknown[0], suggestion(unknown[0], known)))
	}
	for _, w := range warnings {
		fmt.Fprintln(c.App.ErrWriter, "sluice:", w)
	}
	if err := cfg.Validate(); err != nil {
		return usageError(err)
	}
	return config.WriteFile(file, sources)
}
