// Command sluice is a Kubernetes node's Service proxy for small machines.
package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"sluice/agent/cmd"
)

func main() {
	os.Exit(cmd.Main([]*cli.Command{
		cmd.Agent(),
		cmd.Status(),
		cmd.Get(),
		cmd.Explain(),
		cmd.Diff(),
		cmd.Top(),
		cmd.Check(),
		cmd.Cleanup(),
		cmd.Version(),
		cmd.Completion(),
	}, os.Args))
}
