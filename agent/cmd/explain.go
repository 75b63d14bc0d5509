package cmd

import (
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"sluice/agent"
	"sluice/agent/status"
)

// Explain says what becomes of connections to a Service.
func Explain() *cli.Command {
	flags := newConfigFlags("manifests", "hostname-override", "cluster-cidr", "data-dir", "socket", "config")
	output := outputFlag("json or yaml; a text for people without", "json", "yaml")
	from := &flag{name: "from", placeholder: "WHO", usage: "who sends: pod, host, outside or an address; without, pod for a ClusterIP and else outside"}
	protocol := &flag{name: "proto", placeholder: "PROTOCOL", usage: "tcp, udp or sctp; without, whatever the target has", values: []string{"tcp", "udp", "sctp"}}
	live := &flag{name: "live", usage: "follow the kernel's rules too, and say where they do something else than they should"}
	return &cli.Command{
		Name:      "explain",
		Usage:     "say where connections to a Service go on this node, and why",
		UsageText: "sluice explain TARGET [--from WHO] [--proto PROTOCOL] [--live] [-o json|yaml]",
		Description: "TARGET is NAMESPACE/SERVICE[:PORT] or SERVICE[:PORT], with a port's name or\n" +
			"number, an ADDRESS:PORT (also a node's address, or this NODE's name, and a\n" +
			"NodePort), or the ADDRESS of a Service or an endpoint.\n\n" +
			"Says what becomes of the first packet of a connection: which Service has the\n" +
			"address, which endpoints are chosen from, why the others are not, and which\n" +
			"source address they see. Below \"by\" are the rules that do it, for those who know\n" +
			"nft or iptables: as they are planned, or with --live as the kernel has them.\n" +
			"Last comes what firewalls of other programs do with the packet.\n\n" +
			"While no agent is running its cache is explained, or the manifests that its\n" +
			"configuration names. With --manifests no agent is asked, and neither a kernel\n" +
			"nor root is needed: --hostname-override names the node that it is about.\n\n" +
			"Exit codes: 0 success, 1 nothing to explain or no answer, or with --live the\n" +
			"kernel does something else, 2 wrong arguments, 3 no agent is running, and there\n" +
			"is no cache.\n\n" +
			"Examples:\n" +
			"   sluice explain shop/web:http\n" +
			"   sluice explain 192.0.2.1:30080 --from 198.51.100.7\n" +
			"   sluice explain 10.43.0.10:53 --proto udp --from host\n" +
			"   sluice explain shop/web --from 10.42.0.7 --live\n" +
			"   sluice explain shop/web --manifests ./examples --hostname-override node",
		Flags: flags.and(output, from, protocol, live),
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
			q := status.Question{Target: c.Args().First(), From: from.last(), Protocol: protocol.last(), Live: live.on()}
			if err := q.Check(); err != nil {
				return usageError(err)
			}
			paths, err := explain(c, flags, func(a answerer) ([]status.Path, error) { return a.Explain(c.Context, q) })
			if err != nil {
				return askError(err)
			}
			err = show(c.App.Writer, output, status.List[status.Path]{Items: paths}, func(w io.Writer) error { return status.WritePaths(w, paths) })
			if err == nil && slices.ContainsFunc(paths, func(p status.Path) bool { return p.Kernel != nil && len(p.Kernel.Differs) > 0 }) {
				err = &exitError{code: exitFailure}
			}
			return err
		},
	}
}

// explain asks manifests that the command line names, or else as asked does.
func explain(c *cli.Context, flags configFlags, ask func(answerer) ([]status.Path, error)) ([]status.Path, error) {
	if !flags.given("manifests") {
		return asked(c, flags, ask)
	}
	cfg, _, err := flags.load()
	if err != nil {
		return nil, err
	}
	return offline(c, cfg, agent.OfflineOptions{AsNode: true, NoKernel: needNetAdmin() != nil}, "", ask)
}
