package lab

import (
	"net/netip"

	"sluice/proxy"
)

// Names are the addresses of one family that tests may name: node (its main one), alias
// (another one of node at the LAN), bridge (node's at its pods' bridge), node2, outside and
// outside2, loopback, those of all pods, and vip1 to vip5, ext1 to ext5 and lb1 to lb5 of the ranges for
// ClusterIPs, external IPs and load balancers' IPs.
func (l *Lab) Names(f proxy.Family) map[string]netip.Addr {
	node := l.Node.Addrs(f)
	m := map[string]netip.Addr{
		"node":     node[0],
		"alias":    node[1],
		"bridge":   node[2],
		"node2":    l.Node2.Addr(f),
		"outside":  l.Outside.Addr(f),
		"outside2": l.Outside.Addrs(f)[1],
		"loopback": netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	}
	if f == proxy.IPv6 {
		m["loopback"] = netip.IPv6Loopback()
	}
	for _, h := range append(append([]*Host{}, l.Pods...), l.FarPods...) {
		m[h.String()] = h.Addr(f)
	}
	for prefix, from := range map[string]netip.Prefix{"vip": ServiceCIDRs[f], "ext": ExternalCIDRs[f], "lb": LoadBalancerCIDRs[f]} {
		a := from.Addr()
		for i := range 5 {
			a = a.Next()
			m[prefix+string(rune('1'+i))] = a
		}
	}
	return m
}
