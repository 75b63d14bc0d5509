package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"sluice/proxy"
)

// ClusterCIDRs are the ranges that hold all pods, ServiceCIDRs those of the
// ClusterIPs. ExternalCIDRs and LoadBalancerCIDRs are ranges for external IPs and load
// balancers' IPs. All hosts send packets for them to node, and no host has them as its own.
var (
	ClusterCIDRs      = prefixes("10.244.0.0/16", "fd00:10:244::/48")
	ServiceCIDRs      = prefixes("10.96.0.0/16", "fd00:96::/112")
	ExternalCIDRs     = prefixes("198.51.100.0/24", "2001:db8:51::/64")
	LoadBalancerCIDRs = prefixes("203.0.113.0/24", "2001:db8:13::/64")
)

func prefixes(v4, v6 string) map[proxy.Family]netip.Prefix {
	return map[proxy.Family]netip.Prefix{proxy.IPv4: netip.MustParsePrefix(v4), proxy.IPv6: netip.MustParsePrefix(v6)}
}

// Host is one machine or pod of the lab.
type Host struct {
	*Namespace
	addrs map[proxy.Family][]netip.Addr
}

// Addr returns the host's main address in a family.
func (h *Host) Addr(f proxy.Family) netip.Addr { return h.addrs[f][0] }

// Addrs returns all addresses of the host in a family, without loopback and link-local ones.
func (h *Host) Addrs(f proxy.Family) []netip.Addr { return h.addrs[f] }

// Options are what a lab can be made with.
type Options struct {
	// Ports that echo servers listen on, in every pod and on node, for TCP, UDP and SCTP.
	// Nil means 8080 and 8081.
	Ports []uint16
	// Bridged makes a node's pods neighbours on one subnet whose packets to each other pass
	// netfilter on the bridge, as with flannel; New fails with an error that is
	// os.ErrNotExist if the kernel lacks br_netfilter. Without it a pod reaches even its neighbours through the node, as with
	// CNI plugins that route, and the kernel needs no br_netfilter: replies bypass the node's NAT in neither case.
	Bridged bool
}

// Lab is a network of namespaces. See the package comment for its picture.
type Lab struct {
	// Node runs the proxy under test. Its addresses are, in this order: the main one
	// and a second one at the LAN, and the one at the pods' bridge (CNIBridge).
	Node *Host
	// Pods are those of Node: pod1 to pod3.
	Pods []*Host
	// Node2 is another node, and FarPods are on it: far1 and far2.
	Node2   *Host
	FarPods []*Host
	// Outside is a host outside the cluster, with two addresses.
	Outside *Host

	options Options
	hosts   []*Host
	closing context.CancelFunc
	servers sync.WaitGroup
	err     error // what went wrong while it was built
}

// CNIBridge is the name of the bridge that a node's pods hang on.
const CNIBridge = "cni0"

// New builds the lab and waits until its hosts reach each other.
func New(ctx context.Context, o Options) (*Lab, error) {
	if o.Ports == nil {
		o.Ports = []uint16{8080, 8081}
	}
	l := &Lab{options: o}
	serving, closing := context.WithCancel(context.Background())
	l.closing = closing
	router := l.host("router", "192.168.50.254", "fd00:192:168:50::fe")
	l.Node = l.host("node", "192.168.50.1", "fd00:192:168:50::1", "192.168.51.1", "fd00:192:168:51::1", "10.244.1.1", "fd00:10:244:1::1")
	l.Node2 = l.host("node2", "192.168.50.2", "fd00:192:168:50::2", "10.244.2.1", "fd00:10:244:2::1")
	l.Outside = l.host("outside", "192.168.50.100", "fd00:192:168:50::100", "192.168.50.101", "fd00:192:168:50::101")
	for i := 1; i <= 3; i++ {
		l.Pods = append(l.Pods, l.host(fmt.Sprintf("pod%d", i), fmt.Sprintf("10.244.1.1%d", i), fmt.Sprintf("fd00:10:244:1::1%d", i)))
	}
	for i := 1; i <= 2; i++ {
		l.FarPods = append(l.FarPods, l.host(fmt.Sprintf("far%d", i), fmt.Sprintf("10.244.2.1%d", i), fmt.Sprintf("fd00:10:244:2::1%d", i)))
	}
	if l.err == nil {
		l.err = l.connect(ctx, router)
	}
	for _, h := range append(append([]*Host{l.Node}, l.Pods...), l.FarPods...) {
		if l.err == nil {
			l.err = l.serve(serving, h, o.Ports)
		}
	}
	if l.err == nil {
		l.err = l.awaitReachable(ctx, o.Ports[0])
	}
	if l.err != nil {
		return nil, errors.Join(fmt.Errorf("build the lab: %w", l.err), l.Close())
	}
	return l, nil
}

// host makes a host with the given addresses, of either family.
func (l *Lab) host(name string, addrs ...string) *Host {
	if l.err != nil {
		return nil
	}
	ns, err := NewNamespace(name)
	if err != nil {
		l.err = err
		return nil
	}
	h := &Host{Namespace: ns, addrs: map[proxy.Family][]netip.Addr{}}
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		h.addrs[proxy.FamilyOf(a)] = append(h.addrs[proxy.FamilyOf(a)], a)
	}
	l.hosts = append(l.hosts, h)
	return h
}

// Host returns the host of that name (node, node2, outside, pod1 and so on); nil if there is none.
func (l *Lab) Host(name string) *Host {
	for _, h := range l.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

// Close stops the servers and removes everything.
func (l *Lab) Close() error {
	l.closing()
	l.servers.Wait()
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}
