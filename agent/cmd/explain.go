package cmd

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"sluice/agent/status"
)

// Explain says what becomes of connections to a Service.
func Explain() *cli.Command {
	flags := newConfigFlags("socket", "config")
	output := outputFlag("json or yaml; a text for people without", "json", "yaml")
	from := &flag{name: "from", placeholder: "WHO", usage: "who sends: pod, host, outside or an address; without, pod for a ClusterIP and else outside"}
	protocol := &flag{name: "proto", placeholder: "PROTOCOL", usage: "tcp, udp or sctp; without, whatever the target has", values: []string{"tcp", "udp", "sctp"}}
	return &cli.Command{
		Name:      "explain",
		Usage:     "say where connections to a Service go on this node, and why",
		UsageText: "sluice explain TARGET [--from WHO] [--proto PROTOCOL] [-o json|yaml]",
		Description: "TARGET is NAMESPACE/SERVICE[:PORT] or SERVICE[:PORT], with a port's name or\n" +
			"number, an ADDRESS:PORT (also a node's address and a NodePort), or the ADDRESS\n" +
			"of a Service or an endpoint. Shows what the running agent's rules do with the\n" +
			"first packet of a connection: which Service has the address, which endpoints\n" +
			"are chosen from, why the others are not, and which source address they see.\n\n" +
			"Exit codes: 0 success, 1 nothing to explain or no answer, 2 wrong arguments,\n" +
			"3 no agent is running.\n\n" +
			"Examples:\n" +
			"   sluice explain shop/web:http\n" +
			"   sluice explain 192.0.2.1:30080 --from 198.51.100.7\n" +
			"   sluice explain 10.43.0.10:53 --proto udp --from host",
		Flags: flags.and(output, from, protocol),
		BashComplete: complete(func(c *cli.Context) []string {
			if c.NArg() > 0 {
				return nil
			}
			return serviceNames(c, flags, "")
		}),
		Action: func(c *cli.Context) error {
			if err := checkValue(output); err != nil {
				return err
			}
			switch c.NArg() {
			case 0:
				return usageError(fmt.Errorf("say what to explain: a Service or an address"))
			case 1:
			default:
				return unexpectedArgument(c.Args().Get(1))
			}
			client, err := newClient(flags)
			if err != nil {
				return err
			}
			paths, err := client.Explain(c.Context, status.Question{Target: c.Args().First(), From: from.last(), Protocol: protocol.last()})
			if err != nil {
				return askError(err)
			}
			return show(c.App.Writer, output, status.List[status.Path]{Items: paths}, func(w io.Writer) error { return status.WritePaths(w, paths) })
		},
	}
}
