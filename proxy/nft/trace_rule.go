package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// ruling is a verdict (NFTA_VERDICT_*).
type ruling struct {
	code  uint32
	chain string
}

// errNotOurs is about an expression, or a use of one, that no rule of ours has.
var errNotOurs = errors.New("it is none that sluice writes")

// rule runs the expressions of a rule. found says for lookups, by the number of the expression, what they found.
func (m *machine) rule(r *parsedRule, found map[int]string) (v ruling, matched bool, err error) {
	v.code = codeContinue
	for i := range r.ops {
		o := &r.ops[i]
		if o.extra != "" {
			return v, false, errNotOurs
		}
		matched, err = m.op(o, &v, func(text string) { found[i] = text })
		if !matched || err != nil {
			return v, false, err
		}
		if v.code != codeContinue {
			return v, true, nil
		}
	}
	return v, true, nil
}

// op runs one expression, and tells whether the rule goes on.
func (m *machine) op(o *op, v *ruling, found func(string)) (bool, error) {
	switch o.name {
	case "payload", "ct", "fib", "numgen":
		return true, m.load(o)
	case "meta":
		if o.src == regNone {
			return true, m.load(o)
		}
		if expr.MetaKey(o.num[0]) != expr.MetaKeyPRIORITY {
			return false, errNotOurs
		}
		b := m.bytes(o.src, 4)
		if b == nil {
			return false, errNotOurs
		}
		m.priority = binary.NativeEndian.Uint32(b)
	case "bitwise":
		return true, m.bitwise(o)
	case "cmp":
		return m.compare(o)
	case "lookup":
		return m.lookup(o, v, found)
	case "dynset":
		k, known, err := m.key(o)
		if err == nil && (known || k.set == podSources) {
			m.added[k] = true
		}
		return true, err
	case "immediate":
		if o.dst == regVerdict {
			*v = ruling{uint32(o.num[0]), o.text}
			return true, nil
		}
		return true, m.store(o.dst, []byte(o.value), true)
	case "nat":
		addr, port := m.bytes(o.src, addrLen(m.t.family)), m.bytes(o.data, 2)
		if o.num[0] != uint64(expr.NATTypeDestNAT) || addr == nil || port == nil {
			return false, errNotOurs
		}
		m.to.Addr, _ = netip.AddrFromSlice(addr)
		m.to.Port, m.nat = binary.BigEndian.Uint16(port), true
		v.code = nfAccept
	case "masq":
		m.outcome.Masquerade = true
		v.code = nfAccept
	case "reject":
		m.outcome.Verdict = proxy.Rejected
		v.code = nfDrop
	default:
		return false, errNotOurs
	}
	return true, nil
}

// store puts something of the packet into registers. known is false for what is not known of it: that is like nothing else.
func (m *machine) store(reg int8, b []byte, known bool) error {
	if !m.registers.store(reg, b, known) {
		return errNotOurs
	}
	return nil
}

// load puts what an expression reads of the packet into a register.
func (m *machine) load(o *op) error {
	native := func(n uint32) error { return m.store(o.dst, binary.NativeEndian.AppendUint32(nil, n), true) }
	port := func(n uint16) error { return m.store(o.dst, binary.BigEndian.AppendUint16(nil, n), true) }
	source := m.p.From
	switch o.name {
	case "payload":
		switch payloadText(o) {
		case "ip saddr", "ip6 saddr":
			if !source.Addr.IsValid() {
				return m.store(o.dst, make([]byte, addrLen(m.t.family)), false)
			}
			return m.store(o.dst, source.Addr.AsSlice(), true)
		case "ip daddr", "ip6 daddr":
			return m.store(o.dst, m.to.Addr.AsSlice(), true)
		case "th dport":
			return port(m.to.Port)
		}
	case "meta":
		switch expr.MetaKey(o.num[0]) {
		case expr.MetaKeyL4PROTO:
			return m.store(o.dst, []byte{byte(m.p.To.Protocol)}, true)
		case expr.MetaKeyPRIORITY:
			return native(m.priority)
		case expr.MetaKeyIIFNAME:
			name := make([]byte, unix.IFNAMSIZ)
			copy(name, source.Interface)
			return m.store(o.dst, name, source.Interface != "?")
		}
	case "ct":
		switch expr.CtKey(o.num[0]) {
		case expr.CtKeySTATE:
			return native(ctStateNew)
		case expr.CtKeySTATUS:
			if m.nat {
				return native(ctStatusDNAT)
			}
			return native(0)
		case expr.CtKeyDSTIP, expr.CtKeyDSTIP6:
			return m.store(o.dst, m.p.To.Addr.AsSlice(), true)
		case expr.CtKeyPROTODST:
			return port(m.p.To.Port)
		}
	case "fib":
		if o.num[0] == unix.NFT_FIB_RESULT_ADDRTYPE && o.num[1] == unix.NFTA_FIB_F_SADDR {
			if source.Local {
				return native(unix.RTN_LOCAL)
			}
			return native(unix.RTN_UNICAST)
		}
	case "numgen":
		if o.num[1] == unix.NFT_NG_RANDOM && o.num[0] > 0 && o.num[0] <= localSlots {
			return native(m.choices.Draw(uint32(o.num[0])) + uint32(o.num[2]))
		}
	}
	return errNotOurs
}

func (m *machine) bitwise(o *op) error {
	if !m.registers.bitwise(o) {
		return errNotOurs
	}
	return nil
}

func (m *machine) compare(o *op) (matched bool, err error) {
	b := m.bytes(o.src, len(o.value))
	if b == nil {
		return false, errNotOurs
	}
	equal := m.known(o.src, len(o.value)) && string(b) == o.value
	switch expr.CmpOp(o.num[0]) {
	case expr.CmpOpEq:
		return equal, nil
	case expr.CmpOpNeq:
		return !equal, nil
	}
	return false, errNotOurs
}

// key is what an expression looks for in a set, or adds to it. known is false if a part of it is not known.
func (m *machine) key(o *op) (k elemKey, known bool, err error) {
	id := slices.IndexFunc(m.t.defs[:], func(d setDef) bool { return d.name == o.text })
	if id < 0 {
		return k, false, errNotOurs
	}
	k.set = setID(id)
	n := int(padded(m.t.defs[id].key))
	b := m.bytes(o.src, n)
	if b == nil {
		return k, false, errNotOurs
	}
	k.n = uint8(copy(k.b[:], b))
	return k, m.known(o.src, n), nil
}

// lookup looks for an element. Its verdict goes into v, or its data into a register.
func (m *machine) lookup(o *op, v *ruling, found func(string)) (matched bool, err error) {
	k, known, err := m.key(o)
	if err != nil {
		return false, err
	}
	a := answer{is: k, found: m.added[k]}
	if !a.found && known {
		if a, err = m.ask(k); err != nil {
			return false, err
		}
	}
	if o.num[0]&unix.NFT_LOOKUP_F_INV != 0 || !a.found {
		return a.found == (o.num[0]&unix.NFT_LOOKUP_F_INV == 0), nil
	}
	def := &m.t.defs[k.set]
	if known {
		text := def.element(a.is, a.value)
		if a.expires > 0 && a.expires < forever {
			text += fmt.Sprintf(" expires %v", a.expires.Round(time.Second))
		}
		found(text)
	}
	if k.set == affinity {
		m.outcome.Affinity = true
	}
	switch {
	case o.dst == regVerdict:
		if a.value.verdict == noVerdict || a.value.verdict != verdictDrop && a.value.chain == (chain{}) {
			return false, fmt.Errorf("the verdict of element %s of %s: %w", def.element(a.is, a.value), in(m.t.family, def.name), errNotOurs)
		}
		*v = ruling{code: a.value.verdict.code()}
		if a.value.verdict != verdictDrop {
			v.chain = a.value.chain.String()
		}
	case o.dst >= 0:
		return true, m.store(o.dst, a.value.b[:a.value.n], true)
	}
	return true, nil
}

// ask looks an element up once for all runs.
func (m *machine) ask(k elemKey) (a answer, err error) {
	a, known := m.asked[k]
	if !known {
		if a, err = m.t.rules.element(k); err != nil {
			def := &m.t.defs[k.set]
			return a, fmt.Errorf("look for %s in %s: %w", fieldsText(def.key, k.b[:k.n]), in(m.t.family, def.name), err)
		}
		m.asked[k] = a
	}
	return a, nil
}
