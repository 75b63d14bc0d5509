package nft

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// neutral are expressions that let every packet on. An objref is a counter's mostly; a limit's or a quota's can be one, too.
var neutral = []string{"counter", "log", "last", "objref", "dup"}

// verdicts are those of codes. About a packet with any other, another program decides.
var verdicts = map[uint32]firewall.Verdict{
	codeContinue: firewall.Continue, codeReturn: firewall.Return, nfAccept: firewall.Accept, nfDrop: firewall.Drop,
	codeJump: firewall.Jump, codeGoto: firewall.Goto,
}

// codeUnknown stands for a verdict that cannot be foretold. The kernel has none of that number.
const codeUnknown = 0x102

// Judge implements firewall.Table.
func (j *judge) Judge(chain string, i int) (matched firewall.Ternary, r firewall.Rule, err error) {
	v := ruling{code: codeContinue}
	matched, j.open = firewall.Yes, false
	ops := j.rules[chain][i].ops
	for k := 0; k < len(ops) && v.code == codeContinue; k++ {
		m, err := j.op(&ops[k], &v)
		if matched = min(matched, m); matched == firewall.No || err != nil {
			return matched, r, err
		}
	}
	verdict, known := verdicts[v.code]
	if !known {
		verdict = firewall.Accept
	}
	return matched, firewall.Rule{Verdict: verdict, Chain: v.chain, Uncertain: j.open}, nil
}

func (j *judge) op(o *op, v *ruling) (firewall.Ternary, error) {
	if o.extra != "" {
		switch {
		case slices.Contains(neutral, o.name):
			return firewall.Yes, nil
		case slices.Contains([]string{"target", "queue", "tproxy", "synproxy"}, o.name):
			v.code = codeUnknown
		case o.name == "notrack":
			if j.tracked {
				return firewall.Yes, nil // it is too late for that
			}
			v.code = nfDrop // what is not tracked has no DNAT, and so meets no endpoint
		}
		j.forget(0)
		return firewall.Maybe, nil
	}
	switch o.name {
	case "payload", "meta", "ct", "fib", "numgen":
		if o.dst >= 0 {
			j.load(o)
		} else if o.src >= 0 {
			j.set(o)
		}
	case "bitwise":
		if !j.bitwise(o) {
			j.forget(o.dst)
		}
	case "cmp", "range":
		return j.compare(o), nil
	case "lookup":
		return j.lookup(o, v)
	case "immediate":
		if o.dst == regVerdict {
			*v = ruling{uint32(o.num[0]), o.text}
			return firewall.Yes, nil
		}
		j.store(o.dst, []byte(o.value), true)
	case "reject":
		v.code = nfDrop
	case "dynset": // of a set that can be full, or a rate that can be passed
		return firewall.Maybe, nil
	case "nat", "masq":
		v.code = nfAccept
	}
	return firewall.Yes, nil
}

// forget makes registers unknown from one on: how many are meant cannot be told.
func (j *judge) forget(reg int8) {
	for i := max(int(reg), 0); i < len(j.unknown); i++ {
		j.unknown[i] = true
	}
}

// set notes that a rule may change a mark. One that it only restores to what it is stays known.
func (j *judge) set(o *op) {
	var m *mark
	switch {
	case o.name == "meta" && o.num[0] == uint64(expr.MetaKeyMARK):
		m = &j.marks.packet
	case o.name == "ct" && o.num[0] == uint64(expr.CtKeyMARK):
		m = &j.marks.connection
	default:
		return
	}
	m.unknown = m.unknown || !j.known(o.src, 4) || binary.NativeEndian.Uint32(j.bytes(o.src, 4)) != m.value
}

// load puts what is known of the packet into a register.
func (j *judge) load(o *op) {
	native := func(n uint32) { j.store(o.dst, binary.NativeEndian.AppendUint32(nil, n), true) }
	port := func(n uint16) { j.store(o.dst, binary.BigEndian.AppendUint16(nil, n), true) }
	mark := func(m mark) { j.store(o.dst, binary.NativeEndian.AppendUint32(nil, m.value), !m.unknown) }
	name := func(i proxy.Interface) {
		b := make([]byte, unix.IFNAMSIZ)
		copy(b, i.Name)
		j.store(o.dst, b, i.Name != "")
	}
	index := func(i proxy.Interface) {
		j.store(o.dst, binary.NativeEndian.AppendUint32(nil, uint32(i.Index)), i.Index != 0)
	}
	p := j.p
	switch {
	case o.name == "payload" && payloadText(o) == "th dport":
		port(p.Endpoint.Port())
	case o.name == "payload" && o.num[0] == uint64(expr.PayloadBaseNetworkHeader):
		j.loadHeader(o)
	case o.name == "meta":
		switch expr.MetaKey(o.num[0]) {
		case expr.MetaKeyL4PROTO:
			j.store(o.dst, []byte{byte(p.To.Protocol)}, true)
		case expr.MetaKeyNFPROTO:
			j.store(o.dst, []byte{nfproto(j.f.family)}, true)
		case expr.MetaKeyPROTOCOL: // linux/if_ether.h
			port(map[proxy.Family]uint16{proxy.IPv4: unix.ETH_P_IP, proxy.IPv6: unix.ETH_P_IPV6}[j.f.family])
		case expr.MetaKeyMARK:
			mark(j.marks.packet)
		case expr.MetaKeyIIFNAME:
			name(p.In)
		case expr.MetaKeyOIFNAME:
			name(p.Out)
		case expr.MetaKeyIIF:
			index(p.In)
		case expr.MetaKeyOIF:
			index(p.Out)
		default:
			j.forget(o.dst)
		}
	case o.name == "ct" && !j.tracked: // the state of all packets is that of an invalid one, and the rest is not there
		j.store(o.dst, binary.NativeEndian.AppendUint32(nil, ctStateInvalid), expr.CtKey(o.num[0]) == expr.CtKeySTATE)
	case o.name == "ct":
		switch expr.CtKey(o.num[0]) {
		case expr.CtKeySTATE:
			native(ctStateNew)
		case expr.CtKeySTATUS:
			status := map[bool]uint32{false: ctStatusDNAT}[j.early]
			j.store(o.dst, binary.NativeEndian.AppendUint32(nil, status), !j.late)
		case expr.CtKeyMARK:
			mark(j.marks.connection)
		case expr.CtKeyDIRECTION: // original
			j.store(o.dst, []byte{0}, true)
		case expr.CtKeyDSTIP, expr.CtKeyDSTIP6:
			j.store(o.dst, p.To.Addr.AsSlice(), o.num[1] == 0)
		case expr.CtKeyPROTODST:
			j.store(o.dst, binary.BigEndian.AppendUint16(nil, p.To.Port), o.num[1] == 0)
		default:
			j.forget(o.dst)
		}
	case o.name == "fib" && o.num[1]&unix.NFTA_FIB_F_SADDR != 0 && o.num[1]&unix.NFTA_FIB_F_PRESENT != 0:
		// It is taken for granted that it comes in where its answer goes out.
		j.store(o.dst, binary.NativeEndian.AppendUint32(nil, 1), p.From.Addr.IsValid() && !p.From.Local)
	case o.name == "fib" && (j.early || j.late):
		j.forget(o.dst)
	case o.name == "fib" && o.num[0] == unix.NFT_FIB_RESULT_ADDRTYPE && (o.num[1] == unix.NFTA_FIB_F_SADDR || o.num[1] == unix.NFTA_FIB_F_DADDR):
		if local := map[bool]bool{true: p.From.Local, false: p.OnNode}[o.num[1] == unix.NFTA_FIB_F_SADDR]; local {
			native(unix.RTN_LOCAL)
		} else {
			native(unix.RTN_UNICAST)
		}
	default:
		j.forget(o.dst)
	}
}

// loadHeader puts a part of the network header into a register: struct iphdr's protocol is at 9, struct ipv6hdr's nexthdr at 6.
// Prefixes of addresses can be read by their first bytes alone.
func (j *judge) loadHeader(o *op) {
	offset, n := int(o.num[1]), int(o.num[2])
	source, destination, protocol := 12, 16, 9
	if j.f.family == proxy.IPv6 {
		source, destination, protocol = 8, 24, 6
	}
	length := addrLen(j.f.family)
	switch {
	case offset == destination && n <= length && j.p.Endpoint.IsValid():
		j.store(o.dst, j.p.Endpoint.Addr().AsSlice()[:n], true)
	case offset == source && n <= length && j.p.From.Addr.IsValid():
		j.store(o.dst, j.p.From.Addr.AsSlice()[:n], true)
	case offset == protocol && n == 1:
		j.store(o.dst, []byte{byte(j.p.To.Protocol)}, true)
	default:
		j.forget(o.dst)
	}
}

// compare judges cmp, and range: whose value and mask are its ends.
func (j *judge) compare(o *op) firewall.Ternary {
	n := len(o.value)
	if !j.known(o.src, n) {
		return firewall.Maybe
	}
	is := j.bytes(o.src, n)
	if o.name == "range" {
		if len(o.mask) != n {
			return firewall.Maybe
		}
		in := bytes.Compare(is, []byte(o.value)) >= 0 && bytes.Compare(is, []byte(o.mask)) <= 0
		return firewall.Judged(in == (o.num[0] == unix.NFT_RANGE_EQ))
	}
	c := bytes.Compare(is, []byte(o.value))
	switch expr.CmpOp(o.num[0]) {
	case expr.CmpOpEq:
		return firewall.Judged(c == 0)
	case expr.CmpOpNeq:
		return firewall.Judged(c != 0)
	case expr.CmpOpLt:
		return firewall.Judged(c < 0)
	case expr.CmpOpLte:
		return firewall.Judged(c <= 0)
	case expr.CmpOpGt:
		return firewall.Judged(c > 0)
	case expr.CmpOpGte:
		return firewall.Judged(c >= 0)
	}
	return firewall.Maybe
}

// lookup looks for the packet in a set.
func (j *judge) lookup(o *op, v *ruling) (firewall.Ternary, error) {
	set, err := j.f.set(foreignSet{j.table, o.text})
	if err != nil {
		return firewall.Maybe, err
	}
	if !j.known(o.src, set.keyLen) {
		switch {
		case o.dst == regVerdict:
			*v, j.open = set.worst(), true
		case o.dst >= 0:
			j.forget(o.dst)
		}
		return firewall.Maybe, nil
	}
	e := set.find(j.bytes(o.src, set.keyLen))
	if o.num[0]&unix.NFT_LOOKUP_F_INV != 0 || e == nil {
		return firewall.Judged((e != nil) == (o.num[0]&unix.NFT_LOOKUP_F_INV == 0)), nil
	}
	switch {
	case o.dst == regVerdict:
		*v = e.verdict
	case o.dst >= 0:
		j.store(o.dst, e.data, true)
	}
	return firewall.Yes, nil
}
