package cmd

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sluice/agent/version"
)

// Version shows which build this is.
func Version() *cli.Command {
	output := outputFlag("json or yaml; one line of text without", "json", "yaml")
	return &cli.Command{
		Name:        "version",
		Usage:       "show the version",
		UsageText:   "sluice version [-o json|yaml]",
		Description: "Examples:\n   sluice version\n   sluice version -o json",
		Flags:       []cli.Flag{output},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			if err := checkValue(output); err != nil {
				return err
			}
			v := version.Get()
			if output.last() != "" {
				return writeDocument(c.App.Writer, output.last(), v)
			}
			_, err := fmt.Fprintf(c.App.Writer, "sluice %s %s %s\n", v.Version, v.GoVersion, v.Platform)
			return err
		},
	}
}
