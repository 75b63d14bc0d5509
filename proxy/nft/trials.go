package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// probeTrials lists what is tried singly. The first is what all others need. Options and
// modules are those of net/netfilter/Kconfig and Makefile; kernels differ in how much is part of nf_tables itself.
func probeTrials(f proxy.Family) []trial {
	family := "IPV4"
	reject, rejectModule, fibModule := "NFT_REJECT NFT_REJECT_IPV4", "nft_reject_ipv4", "nft_fib_ipv4"
	if f == proxy.IPv6 {
		family = "IPV6"
		reject, rejectModule, fibModule = "NFT_REJECT NFT_REJECT_IPV6", "nft_reject_ipv6", "nft_fib_ipv6"
	}
	return []trial{
		{Trial{Name: "tables and filter chains", Config: "NF_TABLES NF_TABLES_" + family, Module: "nf_tables"}, func(p *prober) error {
			p.baseChain("filter", unix.NF_INET_LOCAL_IN)
			return nil
		}},
		{Trial{Name: "nat chains", Config: "NFT_NAT NF_NAT", Module: "nft_chain_nat"}, func(p *prober) error {
			p.baseChain("nat", unix.NF_INET_PRE_ROUTING)
			return nil
		}},
		{Trial{Name: "maps of concatenations", Config: "NF_TABLES", Module: "nf_tables"}, func(p *prober) error {
			pair := []expr.Any{p.rules.saddr(0), p.rules.daddr(p.rules.addrRegisters()), p.rules.inSet(hairpin)}
			return p.usingSets(append(pair, append(p.frontendKey(), p.rules.mapTo(affinityIDs))...), hairpin, affinityIDs)
		}},
		{Trial{Name: "verdict maps", Config: "NF_TABLES", Module: "nf_tables"}, func(p *prober) error {
			p.batch.newChain(localPolicy.name(), nil)
			k := frontendKey(noEndpoints, probeRoutes(f)[0].Frontend)
			p.batch.addElement(k, gotoChain(localPolicy, 0))
			return p.usingSets(append(p.frontendKey(), p.rules.vmap(noEndpoints)), noEndpoints)
		}},
		{Trial{Name: "ranges in concatenations (kernel 5.6)", Config: "NF_TABLES", Module: "nf_tables"}, func(p *prober) error {
			route := probeRoutes(f)[1]
			p.batch.newSet(sourceRanges)
			elementsOf(route.Frontend, route.New, func(k elemKey, v elemValue) {
				if k.set == sourceRanges {
					p.batch.addElement(k, v)
				}
			})
			return nil
		}},
		{Trial{Name: "counters of elements", Config: "NFT_COUNTER", Module: "nft_counter"}, func(p *prober) error {
			p.batch.newSet(serviceIPs)
			return nil
		}},
		{Trial{Name: "entries that packets add and that expire", Config: "NF_TABLES", Module: "nf_tables"}, func(p *prober) error {
			return p.usingSets([]expr.Any{p.rules.saddr(0), p.rules.update(podSources, 0, podSourceTimeout)}, podSources)
		}},
		{Trial{Name: "random numbers (numgen)", Config: "NFT_NUMGEN", Module: "nft_numgen"}, func(p *prober) error {
			return p.rule("nat", unix.NF_INET_PRE_ROUTING, &expr.Numgen{Register: register(0), Modulus: 2, Type: unix.NFT_NG_RANDOM})
		}},
		{Trial{Name: "change of the destination (dnat)", Config: "NFT_NAT NF_NAT", Module: "nft_nat"}, func(p *prober) error {
			return p.rule("nat", unix.NF_INET_PRE_ROUTING, p.rules.daddr(0), dport(p.rules.addrRegisters()), p.rules.dnat())
		}},
		{Trial{Name: "change of the source (masquerade)", Config: "NFT_MASQ NF_NAT_MASQUERADE", Module: "nft_masq"}, func(p *prober) error {
			return p.rule("nat", unix.NF_INET_POST_ROUTING, masq())
		}},
		{Trial{Name: "is the source an address of this node (fib)", Config: "NFT_FIB NFT_FIB_" + family, Module: fibModule}, func(p *prober) error {
			return p.rule("filter", unix.NF_INET_LOCAL_IN, fromHost(&expr.Verdict{Kind: expr.VerdictReturn}).exprs...)
		}},
		{Trial{Name: "state, status and original destination of a connection (ct)", Config: "NFT_CT NF_CONNTRACK", Module: "nft_ct"}, func(p *prober) error {
			return p.rule("filter", unix.NF_INET_LOCAL_IN, join(stateNew(), statusDNAT(), p.rules.originalFrontend())...)
		}},
		{Trial{Name: "reject", Config: reject, Module: rejectModule}, func(p *prober) error {
			rules := p.rules.reject()
			p.baseChain("filter", unix.NF_INET_LOCAL_IN)
			return p.batch.setRules(probeChain, rules)
		}},
		{Trial{Name: "protocol, interface and priority of a packet (meta)", Config: "NF_TABLES", Module: "nf_tables"}, func(p *prober) error {
			in, _ := p.rules.podInterface()
			return p.rule("nat", unix.NF_INET_PRE_ROUTING, join(in, []expr.Any{l4proto(0), priority(), setPriority()})...)
		}},
		{Trial{Name: "tables that only their owner can change (kernel 6.9)", Config: "NF_TABLES", Module: "nf_tables", Optional: true}, nil},
	}
}

// probeChain is the base chain of a trial.
const probeChain = "try"

func (p *prober) baseChain(typ string, hookNum uint32) {
	priority := int32(priorityAfterDNAT)
	if typ == "nat" {
		priority = priorityDNAT
	}
	p.batch.newChain(probeChain, &hook{typ, hookNum, priority})
}

// rule puts a rule into a base chain.
func (p *prober) rule(typ string, hookNum uint32, exprs ...expr.Any) error {
	p.baseChain(typ, hookNum)
	return p.batch.setRules(probeChain, []rule{{exprs: exprs}})
}

// usingSets creates sets and puts a rule that uses them into a base chain.
func (p *prober) usingSets(exprs []expr.Any, sets ...setID) error {
	for _, id := range sets {
		p.batch.newSet(id)
	}
	return p.rule("filter", unix.NF_INET_LOCAL_IN, exprs...)
}

func (p *prober) frontendKey() []expr.Any {
	exprs, _ := p.rules.frontend()
	return exprs
}
