package iptables

import (
	"net/netip"

	"sluice/proxy"
)

// The kinds of chains that hold a Service port, by the part of their names behind the prefix.
const (
	internalChain = "SVC-" // its ClusterIP
	externalChain = "EXT-" // its addresses outside the cluster
	insideChain   = "INS-" // the same for pods and this node, with externalTrafficPolicy Local
	rangesChain   = "RNG-" // one frontend with loadBalancerSourceRanges
)

// portChain names a chain of a Service port. All its frontends of a kind share it.
func portChain(kind string, p proxy.ServicePortName) string {
	return prefix + kind + hashed(p.Namespace, p.Name, p.Port, p.Protocol.String())
}

func rangesName(f proxy.Frontend) string { return prefix + rangesChain + hashed(f.String()) }

// poolsChain names the chain where a route's endpoints are.
func poolsChain(r *proxy.Route) string {
	if r.Kind == proxy.ClusterIP {
		return portChain(internalChain, r.Port)
	}
	return portChain(externalChain, r.Port)
}

func hasSlots(p *proxy.Pool) bool { return p != nil && len(p.Slots) > 0 }

// serves tells whether any client of a route finds an endpoint.
func serves(r *proxy.Route) bool {
	return r != nil && (hasSlots(r.Pool) || hasSlots(r.LocalPool))
}

// lacks tells whether some client of a route finds no endpoint.
func lacks(r *proxy.Route) bool {
	return !hasSlots(r.Pool) || r.LocalPool != nil && !hasSlots(r.LocalPool)
}

// answered tells whether something has to be said to those whom a route does not serve.
func answered(r *proxy.Route) bool { return r != nil && (lacks(r) || r.SourceRanges != nil) }

// routeChains calls emit for every chain that a frontend's route has for itself or shares with others of its Service port.
func (rs *ruleset) routeChains(c *chain, f proxy.Frontend, r *proxy.Route, emit func(*chain)) {
	if serves(r) {
		rs.poolChains(c, r, emit)
		if r.SourceRanges != nil {
			c.begin(nat, rangesName(f))
			for _, p := range r.SourceRanges {
				c.rule().from(p).gotoChain(poolsChain(r))
			}
			emit(c)
		}
	}
	if r != nil && r.SourceRanges != nil && lacks(r) {
		c.begin(filter, rangesName(f))
		for _, p := range r.SourceRanges {
			answer(c.rule().from(p), r.WhenEmpty)
		}
		c.rule().jump("DROP")
		emit(c)
	}
}

func (rs *ruleset) poolChains(c *chain, r *proxy.Route, emit func(*chain)) {
	name := poolsChain(r)
	if r.LocalPool == nil {
		c.begin(nat, name)
		rs.masquerade(c, r.Masquerade)
		spread(c, r.Port.Protocol, r.Pool, r.Affinity, emit)
		return
	}
	inside := portChain(insideChain, r.Port)
	if hasSlots(r.Pool) {
		c.begin(nat, inside)
		rs.masquerade(c, r.Masquerade)
		spread(c, r.Port.Protocol, r.Pool, r.Affinity, emit)
	}
	c.begin(nat, name)
	if hasSlots(r.Pool) {
		rs.eachPodMatch(c, func(c *chain) { c.gotoChain(inside) })
		fromHost(c.rule()).gotoChain(inside)
	}
	spread(c, r.Port.Protocol, r.LocalPool, r.Affinity, emit)
}

func (rs *ruleset) masquerade(c *chain, m proxy.Masquerade) {
	switch m {
	case proxy.MasqueradeAlways:
		c.rule().mark()
	case proxy.MasqueradeOffCluster:
		c.rule().jump(offCluster)
	case proxy.MasqueradeHost:
		fromHost(c.rule()).mark()
	}
}

// fromHost matches packets whose source is an address of this node.
func fromHost(c *chain) *chain { return c.add(" -m addrtype --src-type LOCAL") }

// eachPodMatch adds one rule for every way to tell a pod. It is told before the DNAT, where a packet from a bridge still
// has its incoming interface.
func (rs *ruleset) eachPodMatch(c *chain, end func(*chain)) {
	switch d := rs.settings.Detection; d.Mode {
	case proxy.DetectBridgeInterface:
		end(c.rule().add(" -i ", d.Interface))
	case proxy.DetectInterfaceNamePrefix:
		end(c.rule().add(" -i ", d.Interface, "+"))
	default:
		for _, p := range rs.ofFamily(d.PodCIDRs) {
			end(c.rule().from(p))
		}
	}
}

func (rs *ruleset) ofFamily(prefixes []netip.Prefix) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range prefixes {
		if proxy.FamilyOf(p.Addr()) == rs.family {
			list = append(list, p.Masked())
		}
	}
	return list
}

// answer ends a rule with what a client without an endpoint hears.
func answer(c *chain, a proxy.Answer) {
	if a == proxy.Drop {
		c.jump("DROP")
		return
	}
	c.gotoChain(rejectChain)
}
