package iptables

import (
	"net/netip"

	"sluice/proxy"
)

// The chains that always exist.
const (
	servicesChain    = prefix + "SERVICES"
	postroutingChain = prefix + "POSTROUTING"
	masqueradeChain  = prefix + "MASQUERADE"
	offCluster       = prefix + "OFF-CLUSTER"
	hairpinRoot      = prefix + "HAIRPIN"
	answersChain     = prefix + "ANSWERS"
	noEndpointsRoot  = prefix + "NO-ENDPOINTS"
	clusterIPsRoot   = prefix + "CLUSTER-IPS"
	rejectChain      = prefix + "REJECT"
)

// jump is a rule in a chain of the system that leads to ours. They are put in with the rules, by iptables-restore: by
// go-iptables it would be two processes for each, and another transaction.
type jump struct {
	table table
	from  string
	rule  string
}

// jumpComment begins the comments of our rules in chains of the system.
const jumpComment = "sluice: "

const toAnswers = `-m conntrack --ctstate NEW -m comment --comment "` + jumpComment + `no endpoint" -j ` + answersChain

var jumps = []jump{
	{nat, "POSTROUTING", `-m comment --comment "` + jumpComment + `masquerade" -j ` + postroutingChain},
	{nat, "PREROUTING", `-m comment --comment "` + jumpComment + `Services" -j ` + servicesChain},
	{nat, "OUTPUT", `-m comment --comment "` + jumpComment + `Services" -j ` + servicesChain},
	{filter, "INPUT", toAnswers},
	{filter, "FORWARD", toAnswers},
	{filter, "OUTPUT", toAnswers},
}

// line is the jump as iptables-save has it.
func (j jump) line() string { return "-A " + j.from + " " + j.rule }

// first puts it before the other rules of the chain.
func (j jump) first() string { return "-I " + j.from + " 1 " + j.rule }

// ruleset is all chains of one family.
type ruleset struct {
	family   proxy.Family
	settings proxy.Settings
	// randomFully is true if MASQUERADE knows --random-fully (iptables 1.6.2).
	randomFully bool
	tries       [trieCount]trie
}

// The tries.
const (
	services    = iota // frontends that have endpoints, by where packets are sent to
	noEndpoints        // frontends that have an answer
	clusterIPs         // addresses whose other ports reject
	hairpin            // endpoints of this node that may reach themselves
	trieCount
)

func newRuleset(f proxy.Family, randomFully bool) *ruleset {
	rs := &ruleset{family: f, randomFully: randomFully}
	rs.tries = [trieCount]trie{
		services: {table: nat, root: servicesChain, leaf: func(c *chain, e entry) {
			target := poolsChain(e.route)
			if e.route.SourceRanges != nil {
				target = rangesName(e.Frontend)
			}
			c.rule().frontend(e.Frontend).comment(e.route.Port.String()).gotoChain(target)
		}},
		noEndpoints: {table: filter, root: noEndpointsRoot, leaf: func(c *chain, e entry) {
			c.rule().frontend(e.Frontend).comment(e.route.Port.String())
			switch {
			case e.route.SourceRanges == nil:
				answer(c, e.route.WhenEmpty)
			case lacks(e.route):
				c.gotoChain(rangesName(e.Frontend))
			default: // who is allowed has an endpoint
				c.jump("DROP")
			}
		}},
		clusterIPs: {table: filter, root: clusterIPsRoot, addrs: true, leaf: func(c *chain, e entry) {
			c.rule().to(host(e.Addr)).gotoChain(rejectChain)
		}},
		hairpin: {table: nat, root: hairpinRoot, addrs: true, leaf: func(c *chain, e entry) {
			rs.masqueradeRule(c.rule().from(host(e.Addr)).to(host(e.Addr)))
		}},
	}
	return rs
}

func (rs *ruleset) masqueradeRule(c *chain) {
	if rs.randomFully {
		c.jump("MASQUERADE --random-fully")
		return
	}
	c.jump("MASQUERADE")
}

// fill takes the frontends and addresses of a state into the tries.
func (rs *ruleset) fill(s *proxy.State) {
	rs.settings = s.Settings()
	for i := range rs.tries {
		rs.tries[i].entries = rs.tries[i].entries[:0]
	}
	add := func(trie int, e entry) { rs.tries[trie].entries = append(rs.tries[trie].entries, e) }
	for f, r := range s.Routes() {
		if serves(r) {
			add(services, entry{f, r})
		}
		if answered(r) {
			add(noEndpoints, entry{f, r})
		}
	}
	for a := range s.ClusterIPs() {
		add(clusterIPs, entry{Frontend: proxy.Frontend{Addr: a}})
	}
	for a := range s.LocalEndpoints() {
		add(hairpin, entry{Frontend: proxy.Frontend{Addr: a}})
	}
	for i := range rs.tries {
		rs.tries[i].sort()
	}
}

// fixed calls emit for the chains that always exist, without those of the tries.
func (rs *ruleset) fixed(c *chain, emit func(*chain)) {
	c.begin(nat, postroutingChain)
	c.rule().add(" -m conntrack --ctstate DNAT").comment("a pod that reaches itself").jump(hairpinRoot)
	c.rule().add(" -m mark --mark ", masqueradeMark).gotoChain(masqueradeChain)
	emit(c)

	c.begin(nat, masqueradeChain)
	c.rule().jump("MARK --set-xmark 0x0/0x4000")
	rs.masqueradeRule(c.rule())
	emit(c)

	c.begin(nat, offCluster)
	rs.eachPodMatch(c, func(c *chain) { c.jump("RETURN") })
	if c.rules > 0 { // where pods cannot be told, nothing is masqueraded
		c.rule().mark()
	}
	emit(c)

	c.begin(filter, answersChain)
	c.rule().jump(noEndpointsRoot)
	c.rule().comment("no such port").jump(clusterIPsRoot)
	for _, p := range rs.ofFamily(rs.settings.ServiceCIDRs) {
		c.rule().to(p).comment("no such ClusterIP").jump("DROP")
	}
	emit(c)

	port := "icmp-port-unreachable"
	if rs.family == proxy.IPv6 {
		port = "icmp6-port-unreachable"
	}
	c.begin(filter, rejectChain)
	c.rule().add(" -p tcp").jump("REJECT --reject-with tcp-reset")
	c.rule().jump("REJECT --reject-with " + port)
	emit(c)
}

// chains calls emit for every chain of a state that fill was called with. own is false for
// the chains of routes: those that frontends share are told of once for each of them.
func (rs *ruleset) chains(c *chain, emit func(c *chain, own bool)) {
	always := func(c *chain) { emit(c, true) }
	rs.fixed(c, always)
	for i := range rs.tries {
		t := &rs.tries[i]
		t.all(t.rootNode(), func(n node) {
			t.render(c, n)
			emit(c, true)
		})
	}
	shared := func(c *chain) { emit(c, false) }
	for _, e := range rs.tries[services].entries {
		rs.routeChains(c, e.Frontend, e.route, shared)
	}
	for _, e := range rs.tries[noEndpoints].entries {
		if !serves(e.route) {
			rs.routeChains(c, e.Frontend, e.route, shared)
		}
	}
}

// trieChange is one entry of a trie that comes, changes or goes.
type trieChange struct {
	trie    int
	entry   entry
	present bool
	// differs is false if the rules of the entry stay as they are.
	differs bool
}

// changes returns what a delta changes in the tries.
func (rs *ruleset) changes(c *chain, d *proxy.Delta) []trieChange {
	var list []trieChange
	text := func(trie int, e entry, present bool) digest {
		c.begin(0, "")
		if present {
			rs.tries[trie].leaf(c, e)
		}
		return c.digest
	}
	for i := range d.Frontends {
		f := &d.Frontends[i]
		for trie, has := range [...]func(*proxy.Route) bool{services: serves, noEndpoints: answered} {
			was, is := has(f.Old), has(f.New)
			if was || is {
				e := entry{f.Frontend, f.New}
				differs := text(trie, entry{f.Frontend, f.Old}, was) != text(trie, e, is)
				list = append(list, trieChange{trie, e, is, differs})
			}
		}
	}
	addrs := func(trie int, list []trieChange, removed, added []netip.Addr) []trieChange {
		for _, a := range removed {
			list = append(list, trieChange{trie, entry{Frontend: proxy.Frontend{Addr: a}}, false, true})
		}
		for _, a := range added {
			list = append(list, trieChange{trie, entry{Frontend: proxy.Frontend{Addr: a}}, true, true})
		}
		return list
	}
	list = addrs(clusterIPs, list, d.RemovedClusterIPs, d.AddedClusterIPs)
	return addrs(hairpin, list, d.RemovedLocalEndpoints, d.AddedLocalEndpoints)
}
