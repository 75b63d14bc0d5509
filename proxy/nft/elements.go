package nft

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"sluice/proxy"
)

// localSlots is the first slot number of the endpoints of this node in a split
// route. A Service cannot have so many endpoints (1,000 per EndpointSlice).
const localSlots = 1 << 20

// chainKind is a kind of chain that elements lead to.
type chainKind uint8

const (
	noChain chainKind = iota
	lb
	lbLocal
	sticky
	stickyLocal
	learn
	learnLocal
	// Those below are single chains that always exist.
	localPolicy
	localPolicyIn
	masqAlways
	masqOffCluster
	masqHost
	reject
)

var chainNames = [...]string{
	lb: "lb-", lbLocal: "lb-local-", sticky: "sticky-", stickyLocal: "sticky-local-",
	learn: "learn-", learnLocal: "learn-local-",
	localPolicy: "local-policy", localPolicyIn: "local-policy-inside",
	masqAlways: "masquerade-always", masqOffCluster: "masquerade-off-cluster", masqHost: "masquerade-host",
	reject: "reject",
}

// chain names a chain: lb-N and its like by the number of slots, learn-N by the
// affinity timeout in seconds.
type chain struct {
	kind chainKind
	n    uint32
}

// counted tells whether the chain exists only while something leads to it.
func (c chain) counted() bool { return c.kind >= lb && c.kind <= learnLocal }

func (c chain) String() string {
	if c.counted() {
		return chainNames[c.kind] + strconv.FormatUint(uint64(c.n), 10)
	}
	return chainNames[c.kind]
}

// elemKey identifies an element: its set and the key's bytes as the kernel has them.
type elemKey struct {
	set setID
	n   uint8
	b   [40]byte // the longest is IPv6 frontend . source
}

// elemValue is what an element holds beside its key: data, a verdict, or the end of a range.
type elemValue struct {
	n       uint8
	b       [20]byte // the longest is an IPv6 address and a port
	verdict verdict
	chain   chain
	end     netip.Addr // of the last field, if the set has ranges
	comment string
}

type verdict uint8

const (
	noVerdict verdict = iota
	verdictGoto
	verdictJump
	verdictDrop
)

func (k *elemKey) add(b ...byte) {
	k.n += uint8(align4(copy(k.b[k.n:], b)))
}

func (k *elemKey) addAddr(a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		k.add(v[:]...)
		return
	}
	v := a.As16()
	k.add(v[:]...)
}

// addNative adds a number that nft shows in host byte order (a slot, a classid).
func (k *elemKey) addNative(v uint32) {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	k.add(b[:]...)
}

func frontendKey(set setID, f proxy.Frontend) elemKey {
	k := elemKey{set: set}
	k.addAddr(f.Addr)
	k.add(byte(f.Protocol))
	k.add(byte(f.Port>>8), byte(f.Port))
	return k
}

func endpointKey(f proxy.Frontend, slot uint32) elemKey {
	k := frontendKey(endpoints, f)
	k.addNative(slot)
	return k
}

func addrKey(set setID, addrs ...netip.Addr) elemKey {
	k := elemKey{set: set}
	for _, a := range addrs {
		k.addAddr(a)
	}
	return k
}

func endpointValue(e netip.AddrPort) (v elemValue) {
	if e.Addr().Is4() {
		a := e.Addr().As4()
		v.n = uint8(copy(v.b[:], a[:]))
	} else {
		a := e.Addr().As16()
		v.n = uint8(copy(v.b[:], a[:]))
	}
	binary.BigEndian.PutUint16(v.b[v.n:], e.Port())
	v.n += 4
	return v
}

// endpoint is the reverse of endpointValue.
func (v *elemValue) endpoint() netip.AddrPort {
	if v.n < 8 {
		return netip.AddrPort{}
	}
	a, _ := netip.AddrFromSlice(v.b[:v.n-4])
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(v.b[v.n-4:]))
}

func idValue(id uint32) (v elemValue) {
	binary.NativeEndian.PutUint32(v.b[:], id)
	v.n = 4
	return v
}

func gotoChain(kind chainKind, n int) elemValue {
	return elemValue{verdict: verdictGoto, chain: chain{kind, uint32(n)}}
}

// toPool leads to a pool that has endpoints.
func toPool(r *proxy.Route, p *proxy.Pool, plain, withAffinity chainKind) elemValue {
	if r.Affinity != 0 {
		return gotoChain(withAffinity, len(p.Slots))
	}
	return gotoChain(plain, len(p.Slots))
}

// serviceValue is the value of a frontend's element of @service-ips; there is none if there is no endpoint.
func serviceValue(r *proxy.Route) (v elemValue, ok bool) {
	switch {
	case r == nil:
		return v, false
	case r.LocalPool != nil:
		v = gotoChain(localPolicy, 0)
	case len(r.Pool.Slots) == 0:
		return v, false
	default:
		v = toPool(r, r.Pool, lb, sticky)
	}
	v.comment = r.Port.String()
	return v, true
}

// elementsOf calls emit for every element that a frontend's route is made of.
func elementsOf(f proxy.Frontend, r *proxy.Route, emit func(elemKey, elemValue)) {
	if r == nil {
		return
	}
	slots := func(p *proxy.Pool, base uint32) {
		for i, e := range p.Slots {
			emit(endpointKey(f, base+uint32(i)), endpointValue(e))
		}
	}
	slots(r.Pool, 0)
	if v, ok := serviceValue(r); ok {
		emit(frontendKey(serviceIPs, f), v)
	}
	empty := len(r.Pool.Slots) == 0
	if r.LocalPool != nil {
		slots(r.LocalPool, localSlots)
		if !empty {
			emit(frontendKey(localPolicyInside, f), toPool(r, r.Pool, lb, sticky))
		}
		if len(r.LocalPool.Slots) > 0 {
			emit(frontendKey(localPolicyOutside, f), toPool(r, r.LocalPool, lbLocal, stickyLocal))
		}
		empty = empty || len(r.LocalPool.Slots) == 0
	}
	if empty {
		v := gotoChain(reject, 0)
		if r.WhenEmpty == proxy.Drop {
			v = elemValue{verdict: verdictDrop}
		}
		v.comment = r.Port.String()
		emit(frontendKey(noEndpoints, f), v)
	}
	switch r.Masquerade {
	case proxy.MasqueradeAlways:
		emit(frontendKey(masquerade, f), gotoChain(masqAlways, 0))
	case proxy.MasqueradeOffCluster:
		emit(frontendKey(masquerade, f), gotoChain(masqOffCluster, 0))
	case proxy.MasqueradeHost:
		emit(frontendKey(masquerade, f), gotoChain(masqHost, 0))
	}
	affinityElements(f, r, emit)
	if r.SourceRanges != nil {
		emit(frontendKey(sourceLimited, f), elemValue{})
		for _, p := range r.SourceRanges {
			k := frontendKey(sourceRanges, f)
			k.addAddr(p.Masked().Addr())
			emit(k, elemValue{end: lastAddr(p)})
		}
	}
}

func affinityElements(f proxy.Frontend, r *proxy.Route, emit func(elemKey, elemValue)) {
	if r.Affinity == 0 {
		return
	}
	v := elemValue{verdict: verdictJump, chain: chain{learn, r.Affinity}}
	emit(frontendKey(affinityIDs, f), idValue(r.Pool.AffinityID))
	if r.LocalPool != nil {
		v.chain.kind = learnLocal
		emit(frontendKey(affinityLocalIDs, f), idValue(r.LocalPool.AffinityID))
	}
	emit(frontendKey(affinityTimeouts, f), v)
}

// lastAddr is the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
