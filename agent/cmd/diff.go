package cmd

import (
	"github.com/urfave/cli/v2"

	"sluice/agent/status"
)

// Diff compares the kernel with what it should have.
func Diff() *cli.Command {
	flags := newConfigFlags("socket", "config", "data-dir", "hostname-override")
	output := outputFlag("json or yaml; a text for people without", "json", "yaml")
	return &cli.Command{
		Name:      "diff",
		Usage:     "compare the kernel's rules with what they should be",
		UsageText: "sluice diff [-o json|yaml]",
		Description: "Asks the running agent on its socket. Reads all rules, maps and their elements\n" +
			"back from the kernel, and changes nothing: the agent mends by itself what it\n" +
			"hears of. While no agent is running the kernel is compared with what the cache\n" +
			"asks for, or the manifests that the configuration names; that needs root.\n\n" +
			"Exit codes: 0 no difference, 1 differences or no answer, 2 wrong arguments, 3 no\n" +
			"agent is running, and there is no cache.\n\n" +
			"Examples:\n" +
			"   sluice diff\n" +
			"   sluice diff -o json | jq .count",
		Flags: flags.and(output),
		Action: showAnswer(output,
			func(c *cli.Context) (status.Diff, error) {
				return asked(c, flags, func(a answerer) (status.Diff, error) { return a.Diff(c.Context) })
			},
			(*status.Diff).Write,
			func(d *status.Diff) bool { return d.Count > 0 }),
	}
}
