package dataplane

import (
	"net/netip"

	"sluice/proxy"
	"sluice/test/lab"
)

// names are the addresses that cases may name, in one family.
func names(l *lab.Lab, f proxy.Family) map[string]netip.Addr {
	node := l.Node.Addrs(f)
	m := map[string]netip.Addr{
		"node":     node[0],
		"alias":    node[1], // another address of node at the LAN
		"bridge":   node[2], // node's address at its pods' bridge
		"node2":    l.Node2.Addr(f),
		"outside":  l.Outside.Addr(f),
		"outside2": l.Outside.Addrs(f)[1], // another address of the same host
		"loopback": netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	}
	if f == proxy.IPv6 {
		m["loopback"] = netip.IPv6Loopback()
	}
	for _, h := range append(append([]*lab.Host{}, l.Pods...), l.FarPods...) {
		m[h.String()] = h.Addr(f)
	}
	for prefix, from := range map[string]netip.Prefix{
		"vip": lab.ServiceCIDRs[f], // vip1 to vip5, for ClusterIPs
		"ext": lab.ExternalCIDRs[f],
		"lb":  lab.LoadBalancerCIDRs[f],
	} {
		a := from.Addr()
		for i := range 5 {
			a = a.Next()
			m[prefix+string(rune('1'+i))] = a
		}
	}
	return m
}
