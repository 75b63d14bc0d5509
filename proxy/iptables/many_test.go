package iptables

import (
	"fmt"
	"net/netip"

	"sluice/proxy"
)

// manyServices is a state of n Services with a ClusterIP each, one in ten with a NodePort, and the given number of endpoints.
func manyServices(f proxy.Family, n, endpoints int, settings proxy.Settings) *proxy.State {
	s := proxy.NewState(f, settings)
	for i := range n {
		plan := manyPlan(f, i, endpoints)
		s.Set(plan.Name, plan)
	}
	return s
}

// manyPlan is the plan of the i-th of them. Its ClusterIP is as if drawn from the service range.
func manyPlan(f proxy.Family, i, endpoints int) *proxy.ServicePlan {
	name := proxy.ServiceName{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
	port := proxy.ServicePortName{ServiceName: name, Port: "http", Protocol: proxy.TCP}
	pool := &proxy.Pool{}
	for e := range endpoints {
		pool.Slots = append(pool.Slots, netip.AddrPortFrom(addrOf(f, 244, i*endpoints+e), 8080))
	}
	vip := addrOf(f, 96, i*40503%65536) // odd, so that all are different
	plan := &proxy.ServicePlan{Name: name, ClusterIPs: []netip.Addr{vip}}
	internal := &proxy.Route{Port: port, Pool: pool, Masquerade: proxy.MasqueradeOffCluster}
	plan.Frontends = append(plan.Frontends, proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: vip, Port: 80, Protocol: proxy.TCP}, Route: internal})
	if i%10 == 0 {
		external := &proxy.Route{Port: port, Kind: proxy.NodePort, Pool: pool, Masquerade: proxy.MasqueradeAlways}
		plan.Frontends = append(plan.Frontends, proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: addrOf(f, 1, 1), Port: uint16(30000 + i*6361%2768), Protocol: proxy.TCP}, Route: external})
	}
	return plan
}

// addrOf is the n-th address of a network.
func addrOf(f proxy.Family, network byte, n int) netip.Addr {
	if f == proxy.IPv4 {
		return netip.AddrFrom4([4]byte{10, network + byte(n>>16), byte(n >> 8), byte(n)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: network, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
}
