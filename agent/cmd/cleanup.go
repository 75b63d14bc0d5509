package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/kubeproxy"
	"sluice/proxy/nft"
)

// cleanups remove what each writer wrote in a family, and tell whether there was anything.
var cleanups = map[string]func(context.Context, proxy.Family) (bool, error){
	proxy.ModeNFTables: func(ctx context.Context, f proxy.Family) (bool, error) {
		return nft.Cleanup(ctx, nft.Options{Family: f})
	},
	proxy.ModeIPTables: func(ctx context.Context, f proxy.Family) (bool, error) {
		return iptables.Cleanup(ctx, iptables.Options{Family: f}, "")
	},
}

// Cleanup removes from the kernel what the agent wrote, or what kube-proxy did.
func Cleanup() *cli.Command {
	flags := newConfigFlags("socket", "config")
	kubeProxy := &flag{name: "kube-proxy", usage: "remove what kube-proxy left instead: its nftables tables and its iptables chains"}
	return &cli.Command{
		Name:      "cleanup",
		Usage:     "remove the agent's rules, or kube-proxy's, from the kernel",
		UsageText: "sluice cleanup [--kube-proxy]",
		Description: "Removes all that an agent wrote, of both IP families, whatever --proxy-mode\n" +
			"was. Services are not reachable then. Needs root (CAP_NET_ADMIN). Refuses\n" +
			"while an agent runs: it would write its rules again. Kernel parameters that\n" +
			"the agent set, as net.ipv4.ip_forward, stay until the machine starts next.\n\n" +
			"With --kube-proxy it removes what kube-proxy left, and nothing else; an agent\n" +
			"may run meanwhile. The rules of the kubelet, of network policies and of CNI\n" +
			"plugins stay. Turn kube-proxy off first (k3s: disable-kube-proxy: true on all\n" +
			"servers), or it writes its rules again.\n\n" +
			"Exit codes: 0 nothing of it is left, 1 failure or an agent is running,\n" +
			"2 wrong arguments.\n\n" +
			"Examples:\n" +
			"   sluice cleanup\n" +
			"   sluice cleanup --kube-proxy",
		Flags: flags.and(kubeProxy),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			cfg, _, err := flags.load()
			if err != nil {
				return err
			}
			if err := needNetAdmin(); err != nil {
				return err
			}
			if kubeProxy.on() {
				return cleanupKubeProxy(c)
			}
			return cleanupSluice(c, cfg.Socket)
		},
	}
}

// cleanupSluice removes what an agent wrote. With the socket claimed no agent can start meanwhile.
func cleanupSluice(c *cli.Context, socket string) error {
	dir := filepath.Dir(socket)
	_, err := os.Stat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	claim, err := status.Listen(c.Context, socket)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	defer func() {
		claim.Close()
		if made { // only for the claim
			os.Remove(claim.Lock())
			os.Remove(dir)
		}
	}()
	var errs []error
	text := "Nothing to remove: sluice has no rules here."
	for name, remove := range cleanups {
		for _, f := range proxy.Families {
			removed, err := remove(c.Context, f)
			if errors.Is(err, unix.EPERM) { // this has the rights, see needNetAdmin: so the kernel keeps another's table from it
				return fmt.Errorf("another sluice agent runs, with another --socket, and keeps its rules; stop it first: %w", err)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("remove the %v rules of %s: %w", f, name, err))
			}
			if removed {
				text = "sluice's rules are removed."
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	_, err = fmt.Fprintln(c.App.Writer, text)
	return err
}

// cleanupKubeProxy removes kube-proxy's rules and lists what it removed and what it had to keep.
func cleanupKubeProxy(c *cli.Context) error {
	removed, err := kubeproxy.Cleanup(c.Context)
	var b strings.Builder
	for _, l := range removed {
		if len(l.Chains) > 0 || l.Place == proxy.ModeNFTables {
			fmt.Fprintf(&b, "Removed %v.\n", l)
		}
		if len(l.Kept) > 0 {
			fmt.Fprintf(&b, "Kept %s in table %s of %s (%v): chains that are not kube-proxy's lead there.\n", strings.Join(l.Kept, ", "), l.Table, l.Place, l.Family)
		}
	}
	if len(removed) == 0 && err == nil {
		b.WriteString("Nothing to remove: kube-proxy has no rules here.\n")
	}
	_, werr := fmt.Fprint(c.App.Writer, b.String())
	return errors.Join(err, werr)
}
