package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

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

// Reset ends the connections that the namespace has to the server, as when a router between them forgets them. Where
// the kernel cannot (CONFIG_INET_DIAG_DESTROY), nothing happens.
func (l *Link) Reset(ctx context.Context) error {
	_, err := l.cluster.ns.Run(ctx, "", "ss", "--kill", "--tcp", "state", "established", "dst", l.Addr.String())
	return err
}
