package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"sluice/proxy"
)

// sysctls that every host gets before its links are made. The ones about ICMP
// switch off the kernel's rate limits, which would make some probes silent.
var sysctls = []struct{ path, value string }{
	{"ipv6/conf/all/disable_ipv6", "0"},
	{"ipv6/conf/default/disable_ipv6", "0"},
	{"ipv6/conf/all/accept_dad", "0"},
	{"ipv6/conf/default/accept_dad", "0"},
	{"ipv6/conf/all/accept_ra", "0"},
	{"ipv6/conf/default/accept_ra", "0"},
	{"ipv6/icmp/ratemask", "0"}, // limit no type but 0, which does not exist
	{"ipv4/icmp_ratemask", "0"},
	{"ipv4/conf/all/rp_filter", "0"},
	{"ipv4/conf/default/rp_filter", "0"},
	{"ipv4/conf/all/send_redirects", "0"},
	{"ipv4/conf/default/send_redirects", "0"},
	{"ipv4/conf/all/accept_redirects", "0"},
	{"ipv4/conf/default/accept_redirects", "0"},
	{"ipv6/conf/all/accept_redirects", "0"},
	{"ipv6/conf/default/accept_redirects", "0"},
}

// forwarding is what nodes and the router get besides.
var forwarding = []struct{ path, value string }{
	{"ipv4/ip_forward", "1"},
	{"ipv6/conf/all/forwarding", "1"},
}

// bridgeNetfilter are switches that exist only where the kernel has br_netfilter.
// They are on by default there.
var bridgeNetfilter = []string{"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"}

// unreachable makes the router say so of whatever it is to forward.
const unreachable = "table inet router { chain forward { type filter hook forward priority 0; reject with icmpx host-unreachable; }; }"

// Sysctl sets one sysctl below net in the namespace, e.g. "ipv4/ip_forward".
func (n *Namespace) Sysctl(path, value string) error {
	return n.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl net/%s in %s: %w", path, n.name, err)
		}
		return nil
	})
}

// refuse has a router forward nothing and say so: by a rule, as the kernel limits the rate at which an
// unreachable route answers. Where the kernel lacks nf_tables it is one of iptables-legacy.
func (n *Namespace) refuse(ctx context.Context) error {
	_, err := n.Run(ctx, unreachable, "nft", "-f", "-")
	if err == nil {
		return nil
	}
	_, err4 := n.Run(ctx, "", "iptables-legacy", "-A", "FORWARD", "-j", "REJECT", "--reject-with", "icmp-host-unreachable")
	_, err6 := n.Run(ctx, "", "ip6tables-legacy", "-A", "FORWARD", "-j", "REJECT", "--reject-with", "icmp6-addr-unreachable")
	if err4 != nil || err6 != nil {
		return errors.Join(err, err4, err6)
	}
	return nil
}

// connect makes the links between the hosts, with addresses and routes.
func (l *Lab) connect(ctx context.Context, router *Host) error {
	if err := l.setSysctls(router); err != nil {
		return err
	}
	if err := router.refuse(ctx); err != nil {
		return err
	}
	// A link is made in the namespace of its bridge, and its other end moved to the host.
	var group errgroup.Group
	for host, script := range map[*Host]string{
		router:  routerScript(router, l.Outside, l.Node, l.Node2),
		l.Node:  bridgeScript(l.Node, l.Pods),
		l.Node2: bridgeScript(l.Node2, l.FarPods),
	} {
		group.Go(func() error { return host.IP(ctx, script) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, host := range l.hosts {
		if host == router {
			continue
		}
		script := l.lanScript(host, router)
		for _, pod := range l.Pods {
			if pod == host {
				script = l.podScript(pod, l.Node)
			}
		}
		for _, pod := range l.FarPods {
			if pod == host {
				script = l.podScript(pod, l.Node2)
			}
		}
		group.Go(func() error { return host.IP(ctx, script) })
	}
	return group.Wait()
}

func (l *Lab) setSysctls(router *Host) error {
	for _, host := range l.hosts {
		set := sysctls
		if host == router || host == l.Node || host == l.Node2 {
			set = append(append(set[:0:0], set...), forwarding...)
		}
		for _, s := range set {
			if err := host.Sysctl(s.path, s.value); err != nil {
				return err
			}
		}
		for _, path := range bridgeNetfilter {
			value := "0"
			if l.options.Bridged && (host == l.Node || host == l.Node2) {
				value = "1"
			}
			err := host.Sysctl(path, value)
			if errors.Is(err, os.ErrNotExist) && value == "0" {
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// link writes the lines that make a link from a bridge to a host, where it is called eth0.
func link(script *strings.Builder, bridge string, to *Host) {
	fmt.Fprintf(script, "link add veth-%s type veth peer name eth0 netns /proc/%d/fd/%d\n", to.name, os.Getpid(), to.FD())
	fmt.Fprintf(script, "link set veth-%s master %s up\n", to.name, bridge)
	fmt.Fprintf(script, "link set veth-%s type bridge_slave hairpin on\n", to.name)
}

func routerScript(router, outside *Host, nodes ...*Host) string {
	var s strings.Builder
	s.WriteString("link add lan type bridge\nlink set lan up\nlink set lo up\n")
	link(&s, "lan", outside)
	for _, node := range nodes {
		link(&s, "lan", node)
	}
	for _, f := range proxy.Families {
		fmt.Fprintf(&s, "address add %s/%d dev lan%s\n", router.Addr(f), bits[f], addressFlags[f])
		fmt.Fprintf(&s, "route add %s dev lan\n", everywhere[f])
		for _, node := range nodes {
			fmt.Fprintf(&s, "route add %s via %s\n", subnet(node.bridgeAddr(f)), node.Addr(f))
		}
	}
	return s.String()
}

// bridgeScript makes a node's bridge and the links to its pods.
func bridgeScript(node *Host, pods []*Host) string {
	var s strings.Builder
	fmt.Fprintf(&s, "link add %s type bridge\nlink set %[1]s up\nlink set lo up\n", CNIBridge)
	for _, pod := range pods {
		link(&s, CNIBridge, pod)
	}
	for _, f := range proxy.Families {
		fmt.Fprintf(&s, "address add %s/%d dev %s%s\n", node.bridgeAddr(f), bits[f], CNIBridge, addressFlags[f])
	}
	return s.String()
}

// everywhere is the default route, bits the length of every subnet's prefix.
var (
	everywhere = map[proxy.Family]netip.Prefix{
		proxy.IPv4: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
		proxy.IPv6: netip.PrefixFrom(netip.IPv6Unspecified(), 0),
	}
	// addressFlags make an address usable at once, without a search for duplicates.
	addressFlags = map[proxy.Family]string{proxy.IPv6: " nodad"}
	bits         = map[proxy.Family]int{proxy.IPv4: 24, proxy.IPv6: 64}
)

// subnet returns the subnet of an address of the lab.
func subnet(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, bits[proxy.FamilyOf(a)]).Masked()
}

// bridgeAddr returns a node's address at its pods' bridge.
func (h *Host) bridgeAddr(f proxy.Family) netip.Addr { return h.addrs[f][len(h.addrs[f])-1] }

// podScript gives a pod its addresses and routes.
func (l *Lab) podScript(pod, node *Host) string {
	var s strings.Builder
	s.WriteString("link set lo up\nlink set eth0 up\n")
	for _, f := range proxy.Families {
		gateway := node.bridgeAddr(f)
		if l.options.Bridged {
			fmt.Fprintf(&s, "address add %s/%d dev eth0%s\n", pod.Addr(f), bits[f], addressFlags[f])
		} else {
			fmt.Fprintf(&s, "address add %s dev eth0%s\n", pod.Addr(f), addressFlags[f])
			fmt.Fprintf(&s, "route add %s dev eth0\n", gateway)
		}
		fmt.Fprintf(&s, "route add %s via %s\n", everywhere[f], gateway)
	}
	return s.String()
}

// lanScript gives a host at the LAN its addresses and its routes.
func (l *Lab) lanScript(host, router *Host) string {
	var s strings.Builder
	s.WriteString("link set lo up\nlink set eth0 up\n")
	for _, f := range proxy.Families {
		addrs := host.Addrs(f)
		if host != l.Outside {
			addrs = addrs[:len(addrs)-1] // the last one is at the bridge
		}
		for i, a := range addrs {
			fmt.Fprintf(&s, "address add %s/%d dev eth0%s", a, bits[f], addressFlags[f])
			if i > 0 {
				s.WriteString(" preferred_lft 0") // never a source unless it is asked for
			}
			s.WriteString("\n")
		}
		fmt.Fprintf(&s, "route add %s via %s src %s\n", everywhere[f], router.Addr(f), host.Addr(f))
		via := map[netip.Prefix]*Host{subnet(l.Node.bridgeAddr(f)): l.Node, subnet(l.Node2.bridgeAddr(f)): l.Node2}
		for _, p := range []netip.Prefix{ServiceCIDRs[f], ExternalCIDRs[f], LoadBalancerCIDRs[f], subnet(l.Node.Addrs(f)[1])} {
			via[p] = l.Node
		}
		for prefix, node := range via {
			if node != host {
				fmt.Fprintf(&s, "route add %s via %s src %s\n", prefix, node.Addr(f), host.Addr(f))
			}
		}
	}
	return s.String()
}
