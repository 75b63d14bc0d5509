package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// hook attaches a base chain to the packet path (NFTA_HOOK_*; numbers of enum nf_inet_hooks).
type hook struct {
	typ      string // "nat" or "filter"
	num      uint32
	priority int32
}

// The priorities. DNAT and SNAT are where nft's `dstnat` and `srcnat` are
// (linux/netfilter_ipv4.h), or before other programs' nat chains (see precedence); the checks before DNAT stand a little before it,
// the answers a little behind it, and so before other tables' filters.
const (
	beforeDNAT        = 10
	priorityDNAT      = -100
	priorityAfterDNAT = -90
	prioritySNAT      = 100
)

// rule is the expressions of one rule and its comment.
type rule struct {
	exprs   []expr.Any
	comment string
}

// chainDef is a chain with its rules.
type chainDef struct {
	name  string
	hook  *hook
	rules []rule
	// usesRanges: the rules look into @source-ranges.
	usesRanges bool
}

// ruleset builds the chains of one family's table.
type ruleset struct {
	family   proxy.Family
	defs     *[setCount]setDef
	settings proxy.Settings
	others   precedence
}

// register returns the n-th 32-bit register (enum nft_registers).
func register(n int) uint32 { return uint32(unix.NFT_REG32_00 + n) }

// addrRegisters is the number of 32-bit registers of an address.
func (r *ruleset) addrRegisters() int { return addrLen(r.family) / 4 }

// addrLen is the length of an address in bytes.
func addrLen(f proxy.Family) int {
	if f == proxy.IPv6 {
		return 16
	}
	return 4
}

func (r *ruleset) saddr(reg int) expr.Any {
	if r.family == proxy.IPv6 { // struct ipv6hdr
		return &expr.Payload{DestRegister: register(reg), Base: expr.PayloadBaseNetworkHeader, Offset: 8, Len: 16}
	}
	return &expr.Payload{DestRegister: register(reg), Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
}

func (r *ruleset) daddr(reg int) expr.Any {
	if r.family == proxy.IPv6 {
		return &expr.Payload{DestRegister: register(reg), Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16}
	}
	return &expr.Payload{DestRegister: register(reg), Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
}

func dport(reg int) expr.Any {
	return &expr.Payload{DestRegister: register(reg), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func l4proto(reg int) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(reg)}
}

// frontend loads the packet's destination, protocol and port: the key of most sets.
// It returns the number of the first free register too.
func (r *ruleset) frontend() ([]expr.Any, int) {
	n := r.addrRegisters()
	return []expr.Any{r.daddr(0), l4proto(n), dport(n + 1)}, n + 2
}

// originalFrontend loads the same as the connection had it before DNAT.
func (r *ruleset) originalFrontend() []expr.Any {
	n := r.addrRegisters()
	dst := expr.CtKeyDSTIP
	if r.family == proxy.IPv6 {
		dst = expr.CtKeyDSTIP6
	}
	return []expr.Any{
		&expr.Ct{Key: dst, Register: register(0)}, // direction 0 is "original"
		l4proto(n),
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: register(n + 1)},
	}
}

func (r *ruleset) setName(id setID) string { return r.defs[id].name }

// vmap looks the loaded key up in a verdict map.
func (r *ruleset) vmap(id setID) expr.Any {
	return &expr.Lookup{SourceRegister: register(0), SetName: r.setName(id), IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT}
}

// mapTo looks the loaded key up in a map and puts the data into the first registers.
func (r *ruleset) mapTo(id setID) expr.Any {
	return &expr.Lookup{SourceRegister: register(0), SetName: r.setName(id), IsDestRegSet: true, DestRegister: register(0)}
}

func (r *ruleset) inSet(id setID) expr.Any {
	return &expr.Lookup{SourceRegister: register(0), SetName: r.setName(id)}
}

func (r *ruleset) notInSet(id setID) expr.Any {
	return &expr.Lookup{SourceRegister: register(0), SetName: r.setName(id), Invert: true}
}

// dnat changes the destination to the address and port that mapTo loaded.
func (r *ruleset) dnat() expr.Any {
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(nfproto(r.family)),
		RegAddrMin: register(0), RegProtoMin: register(r.addrRegisters())}
}

func masq() expr.Any { return &expr.Masq{FullyRandom: true} }

func leadTo(kind expr.VerdictKind, to string) expr.Any { return &expr.Verdict{Kind: kind, Chain: to} }

// anyBit matches if a 32-bit value in host byte order has one of the bits.
func anyBit(reg int, load expr.Any, bits uint32) []expr.Any {
	mask := binary.NativeEndian.AppendUint32(nil, bits)
	return []expr.Any{load,
		&expr.Bitwise{SourceRegister: register(reg), DestRegister: register(reg), Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(reg), Data: make([]byte, 4)},
	}
}

// Bits of `ct state` and `ct status` (linux/netfilter/nf_conntrack_common.h).
const (
	ctStateInvalid = 1  // NF_CT_STATE_INVALID_BIT
	ctStateNew     = 8  // 1 << (IP_CT_NEW % IP_CT_IS_REPLY + 1)
	ctStatusDNAT   = 32 // IPS_DST_NAT
)

// stateNew is `ct state new`, statusDNAT `ct status dnat`.
func stateNew() []expr.Any {
	return anyBit(0, &expr.Ct{Key: expr.CtKeySTATE, Register: register(0)}, ctStateNew)
}

func statusDNAT() []expr.Any {
	return anyBit(0, &expr.Ct{Key: expr.CtKeySTATUS, Register: register(0)}, ctStatusDNAT)
}

// inPrefix matches an address in a prefix.
func inPrefix(load expr.Any, p netip.Prefix) []expr.Any {
	addr := p.Masked().Addr().AsSlice()
	mask := make([]byte, len(addr))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{load,
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: uint32(len(addr)), Mask: mask, Xor: make([]byte, len(addr))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: addr},
	}
}

func join(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// fromPods returns rules that end in verdict for every way to tell a pod. Where
// interfaces tell, it is by the sources that came in through them: a packet that is bridged
// from one pod to another (br_netfilter) has no incoming interface after the DNAT, and on
// kernels before 5.7 none has.
func (r *ruleset) fromPods(verdict expr.Any) []rule {
	if _, byInterface := r.podInterface(); byInterface {
		return []rule{{exprs: []expr.Any{r.saddr(0), r.inSet(podSources), verdict}}}
	}
	var rules []rule
	for _, p := range r.settings.Detection.PodCIDRs {
		if proxy.FamilyOf(p.Addr()) == r.family {
			rules = append(rules, rule{exprs: join(inPrefix(r.saddr(0), p), []expr.Any{verdict})})
		}
	}
	return rules
}

// podInterface matches the pods' interfaces, in the modes that tell pods by them.
func (r *ruleset) podInterface() (match []expr.Any, byInterface bool) {
	n := 0
	switch r.settings.Detection.Mode {
	case proxy.DetectBridgeInterface:
		n = unix.IFNAMSIZ
	case proxy.DetectInterfaceNamePrefix:
		n = len(r.settings.Detection.Interface)
	default:
		return nil, false
	}
	name := make([]byte, n)
	copy(name, r.settings.Detection.Interface)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: name},
	}, true
}

// seePods notes the sources that come in through the pods' interfaces.
func (r *ruleset) seePods() []rule {
	match, byInterface := r.podInterface()
	if !byInterface {
		return nil
	}
	return []rule{{exprs: join(match, []expr.Any{r.saddr(0), r.update(podSources, 0, podSourceTimeout)})}}
}

// update adds the key in the first registers to a dynamic set, or refreshes its time in seconds.
// data is the register of a map's data, 0 in a set.
func (r *ruleset) update(id setID, data uint32, timeout uint32) expr.Any {
	return &expr.Dynset{SrcRegKey: register(0), SrcRegData: data, SetName: r.setName(id),
		Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: time.Duration(timeout) * time.Second}
}

// fromHost matches packets whose source is an address of this node (RTN_LOCAL of linux/rtnetlink.h).
func fromHost(verdict expr.Any) rule {
	return rule{exprs: []expr.Any{
		&expr.Fib{Register: register(0), ResultADDRTYPE: true, FlagSADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
		verdict}}
}

// chains returns all chains that always exist. The base chains come last.
func (r *ruleset) chains() []chainDef {
	frontend, next := r.frontend()
	dispatch := func(id setID) rule { return rule{exprs: join(frontend, []expr.Any{r.vmap(id)})} }
	original := func(id setID) rule { return rule{exprs: join(r.originalFrontend(), []expr.Any{r.vmap(id)})} }
	masquerade1 := rule{exprs: []expr.Any{masq()}}
	ret := &expr.Verdict{Kind: expr.VerdictReturn}
	inside := leadTo(expr.VerdictGoto, localPolicyIn.name())

	answers := []rule{
		dispatch(noEndpoints),
		{exprs: []expr.Any{r.daddr(0), r.inSet(clusterIPs), leadTo(expr.VerdictGoto, reject.name())}, comment: "no such port"},
	}
	for _, p := range r.settings.ServiceCIDRs {
		if proxy.FamilyOf(p.Addr()) == r.family {
			answers = append(answers, rule{exprs: join(inPrefix(r.daddr(0), p), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}), comment: "no such ClusterIP"})
		}
	}
	restricted := join(stateNew(), frontend, []expr.Any{r.inSet(sourceLimited)},
		frontend, []expr.Any{r.saddr(next), r.notInSet(sourceRanges), &expr.Verdict{Kind: expr.VerdictDrop}})
	toAnswers := []rule{{exprs: join(stateNew(), []expr.Any{leadTo(expr.VerdictJump, "answers")})}}

	return []chainDef{
		{name: localPolicy.name(), rules: append(append(r.fromPods(inside), fromHost(inside)), dispatch(localPolicyOutside))},
		{name: localPolicyIn.name(), rules: []rule{dispatch(localPolicyInside)}},
		{name: masqAlways.name(), rules: []rule{masquerade1}},
		{name: masqOffCluster.name(), rules: r.offCluster(ret, masquerade1)},
		{name: masqHost.name(), rules: []rule{fromHost(masq())}},
		{name: reject.name(), rules: r.reject()},
		{name: "answers", rules: answers},
		{name: "after-dnat", rules: []rule{
			original(affinityTimeouts),
			{exprs: []expr.Any{r.saddr(0), r.daddr(r.addrRegisters()), r.inSet(hairpin), masq()}, comment: "a pod that reaches itself"},
			original(masquerade),
		}},
		{name: "source-ranges-prerouting", hook: r.others.hook(unix.NF_INET_PRE_ROUTING).before(), rules: []rule{{exprs: restricted}}, usesRanges: true},
		{name: "source-ranges-output", hook: r.others.hook(unix.NF_INET_LOCAL_OUT).before(), rules: []rule{{exprs: restricted}}, usesRanges: true},
		{name: "answers-input", hook: &hook{"filter", unix.NF_INET_LOCAL_IN, priorityAfterDNAT}, rules: toAnswers},
		{name: "answers-forward", hook: &hook{"filter", unix.NF_INET_FORWARD, priorityAfterDNAT}, rules: toAnswers},
		{name: "answers-output", hook: &hook{"filter", unix.NF_INET_LOCAL_OUT, priorityAfterDNAT}, rules: toAnswers},
		{name: "nat-postrouting", hook: r.others.hook(unix.NF_INET_POST_ROUTING), rules: []rule{
			{exprs: join(statusDNAT(), []expr.Any{leadTo(expr.VerdictGoto, "after-dnat")})}}},
		{name: "nat-input", hook: r.others.hook(unix.NF_INET_LOCAL_IN), rules: []rule{
			{exprs: join(statusDNAT(), r.originalFrontend(), []expr.Any{r.vmap(affinityTimeouts)})}}},
		{name: "nat-prerouting", hook: r.others.hook(unix.NF_INET_PRE_ROUTING), rules: append(r.seePods(), dispatch(serviceIPs))},
		{name: "nat-output", hook: r.others.hook(unix.NF_INET_LOCAL_OUT), rules: []rule{dispatch(serviceIPs)}},
	}
}

// offCluster masquerades what is not from a pod. Where pods cannot be told, nothing is.
func (r *ruleset) offCluster(ret expr.Any, masquerade rule) []rule {
	rules := r.fromPods(ret)
	if len(rules) == 0 {
		return nil
	}
	return append(rules, masquerade)
}

func (r *ruleset) reject() []rule {
	// Port unreachable: ICMP code 3, ICMPv6 code 4 (RFC 792, RFC 4443).
	code := uint8(3)
	if r.family == proxy.IPv6 {
		code = 4
	}
	return []rule{
		{exprs: []expr.Any{l4proto(0), &expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{unix.IPPROTO_TCP}},
			&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}},
		{exprs: []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}},
	}
}

// counted returns the rules of a chain that exists only while something leads to it.
func (r *ruleset) counted(c chain) []rule {
	frontend, next := r.frontend()
	spread := func(offset uint32) []rule {
		return []rule{{exprs: join(frontend, []expr.Any{
			&expr.Numgen{Register: register(next), Modulus: c.n, Type: unix.NFT_NG_RANDOM, Offset: offset},
			r.mapTo(endpoints), r.dnat()})}}
	}
	// A connection's pool number is kept in the packet's priority, from one rule to the
	// next: the first packet of a connection alone comes here, and it is set again
	// by the routing of forwarded packets.
	remembered := func(ids setID, then chainKind) []rule {
		return []rule{
			{exprs: join(frontend, []expr.Any{r.mapTo(ids), setPriority()})},
			{exprs: []expr.Any{priority(), r.saddr(1), r.mapTo(affinity), r.dnat()}, comment: "a client that was here before"},
			{exprs: []expr.Any{leadTo(expr.VerdictGoto, chain{then, c.n}.String())}},
		}
	}
	learned := func(ids setID) []rule {
		n := r.addrRegisters()
		return []rule{
			{exprs: join(r.originalFrontend(), []expr.Any{r.mapTo(ids), setPriority()})},
			{exprs: []expr.Any{priority(), r.saddr(1), r.daddr(1 + n), dport(1 + 2*n),
				r.update(affinity, register(1+n), c.n)}},
			{exprs: []expr.Any{&expr.Immediate{Register: register(0), Data: make([]byte, 4)}, setPriority()}},
		}
	}
	switch c.kind {
	case lb:
		return spread(0)
	case lbLocal:
		return spread(localSlots)
	case sticky:
		return remembered(affinityIDs, lb)
	case stickyLocal:
		return remembered(affinityLocalIDs, lbLocal)
	case learn:
		return learned(affinityIDs)
	case learnLocal:
		all := leadTo(expr.VerdictGoto, chain{learn, c.n}.String())
		return append(append(r.fromPods(all), fromHost(all)), learned(affinityLocalIDs)...)
	}
	panic(fmt.Sprintf("no rules are defined for chain %v", c))
}

// needs returns the chain that c's rules lead to, if it is a counted one.
func (c chain) needs() (chain, bool) {
	switch c.kind {
	case sticky:
		return chain{lb, c.n}, true
	case stickyLocal:
		return chain{lbLocal, c.n}, true
	case learnLocal:
		return chain{learn, c.n}, true
	}
	return chain{}, false
}

func (k chainKind) name() string { return chainNames[k] }

func priority() expr.Any {
	return &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: register(0)}
}

func setPriority() expr.Any {
	return &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: register(0), SourceRegister: true}
}
