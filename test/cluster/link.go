package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"sluice/test/lab"
)

// LinkInterface is the name of a joined namespace's end of its link.
const LinkInterface = "control0"

// bridge is the interface that holds the server's address.
const bridge = "control"

func (c *Cluster) makeNamespace(ctx context.Context) (err error) {
	if c.ns, err = lab.NewNamespace("control plane"); err != nil {
		return err
	}
	return c.ns.IP(ctx, fmt.Sprintf("link set lo up\nlink add %s type bridge\nlink set %[1]s up\naddress add %v dev %[1]s", bridge, serverPrefix))
}

// Link joins a namespace to the one of the servers.
type Link struct {
	// Addr is the namespace's address on the link.
	Addr netip.Addr

	cluster *Cluster
	name    string
}

// Join links a namespace to the servers, which it reaches at Cluster.URL then. The link ends with either.
func (c *Cluster) Join(ctx context.Context, ns *lab.Namespace) (*Link, error) {
	if c.ns == nil {
		return nil, errors.New("join a namespace: the servers are on loopback")
	}
	c.nextLink++
	addr := serverPrefix.Addr()
	for range c.nextLink {
		addr = addr.Next()
	}
	l := &Link{Addr: addr, cluster: c, name: fmt.Sprint("link", c.nextLink)}
	err := l.cluster.ns.IP(ctx, fmt.Sprintf("link add %s type veth peer name %s netns /proc/%d/fd/%d\nlink set %[1]s master %[5]s up",
		l.name, LinkInterface, os.Getpid(), ns.FD(), bridge))
	if err == nil {
		err = ns.IP(ctx, fmt.Sprintf("link set %s up\naddress add %v/%d dev %[1]s", LinkInterface, addr, serverPrefix.Bits()))
	}
	if err != nil {
		return nil, fmt.Errorf("join %v to the control plane: %w", ns, err)
	}
	return l, nil
}

// Cut makes the link silent: what is sent is lost, as when a switch fails.
func (l *Link) Cut(ctx context.Context) error {
	return l.cluster.ns.IP(ctx, fmt.Sprintf("link set %s nomaster", l.name))
}

// Mend ends a Cut.
func (l *Link) Mend(ctx context.Context) error {
	return l.cluster.ns.IP(ctx, fmt.Sprintf("link set %s master %s", l.name, bridge))
}

// Down takes the link down, so that the namespace's end of it loses its carrier.
func (l *Link) Down(ctx context.Context) error {
	return l.cluster.ns.IP(ctx, fmt.Sprintf("link set %s down", l.name))
}

// Up ends a Down.
func (l *Link) Up(ctx context.Context) error {
	return l.cluster.ns.IP(ctx, fmt.Sprintf("link set %s up", l.name))
}

// Forget makes the connections that the namespace has to the server silent for ever, as when a machine between them, or the server's,
// is replaced by another: neither end is told. New connections pass.
func (l *Link) Forget(ctx context.Context) error {
	open, err := l.cluster.ns.Run(ctx, "", "ss", "-Htn", "state", "established", "dst", l.Addr.String())
	if err != nil {
		return err
	}
	var flows []string
	for line := range strings.Lines(open) {
		fields := strings.Fields(line) // queues, the address here, that of the peer
		if at, err := netip.ParseAddrPort(fields[len(fields)-1]); err == nil {
			flows = append(flows, fmt.Sprintf("%v . %d", at.Addr(), at.Port()))
		}
	}
	if len(flows) == 0 {
		return errors.New("forget connections: there are none")
	}
	_, err = l.cluster.ns.Run(ctx, fmt.Sprintf(`table ip forgotten {
	set flows { type ipv4_addr . inet_service; elements = { %s }; }
	chain in { type filter hook input priority 0; ip saddr . tcp sport @flows drop; }
	chain out { type filter hook output priority 0; ip daddr . tcp dport @flows drop; }
}`, strings.Join(flows, ", ")), "nft", "-f", "-")
	return err
}

// Reset ends the connections that the namespace has to the server, as when a router between them forgets them. Where
// the kernel cannot (CONFIG_INET_DIAG_DESTROY), nothing happens.
func (l *Link) Reset(ctx context.Context) error {
	_, err := l.cluster.ns.Run(ctx, "", "ss", "--kill", "--tcp", "state", "established", "dst", l.Addr.String())
	return err
}
