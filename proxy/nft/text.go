package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// in names a chain or a set of a family's table as nft does: "ip sluice nat-prerouting".
func in(f proxy.Family, what string) string {
	return strings.TrimRight(familyName(nfproto(f))+" "+TableName+" "+what, " ")
}

// fieldText is one field of a key or of data as nft prints it.
func (t datatype) text(b []byte) string {
	switch t {
	case typeIPv4, typeIPv6:
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case typeProto:
		return strings.ToLower(proxy.Protocol(b[0]).String())
	case typeService:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
	case typeClassID:
		n := binary.NativeEndian.Uint32(b)
		return fmt.Sprintf("%04x:%04x", n>>16, n&0xffff)
	}
	return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b))
}

// fieldsText are the fields of a concatenation.
func fieldsText(ts []datatype, b []byte) string {
	var words []string
	for _, t := range ts {
		if len(b) < int(t.length) {
			break
		}
		words = append(words, t.text(b[:t.length]))
		b = b[min(len(b), align4(int(t.length))):]
	}
	return strings.Join(words, " . ")
}

// element is an element as nft prints it, without its counter.
func (d *setDef) element(k elemKey, v elemValue) string {
	s := fieldsText(d.key, k.b[:k.n])
	if v.end.IsValid() {
		first := s[strings.LastIndexByte(s, ' ')+1:]
		s = strings.TrimSuffix(s, first) + rangeText(first, v.end)
	}
	switch {
	case v.verdict == verdictDrop:
		s += " : drop"
	case v.verdict != noVerdict:
		s += " : " + map[verdict]string{verdictGoto: "goto ", verdictJump: "jump "}[v.verdict] + v.chain.String()
	case v.n > 0:
		s += " : " + fieldsText(d.data, v.b[:v.n])
	}
	if v.comment != "" {
		s += fmt.Sprintf(" comment %q", v.comment)
	}
	return s
}

// rangeText is a prefix if the range is one.
func rangeText(first string, end netip.Addr) string {
	a, err := netip.ParseAddr(first)
	if err != nil || a == end {
		return first
	}
	for n := range a.BitLen() {
		if p := netip.PrefixFrom(a, n); p.Masked().Addr() == a && lastAddr(p) == end {
			return p.String()
		}
	}
	return first + "-" + end.String()
}

// ruleText is a rule nearly as nft prints it. found says which element a lookup found, by the op's number; nil says nothing.
func ruleText(r parsedRule, found map[int]string) string {
	var p printer
	var words []string
	for i := range r.ops {
		if s := p.op(&r.ops[i], found[i]); s != "" {
			words = append(words, s)
		}
	}
	if r.comment != "" {
		words = append(words, fmt.Sprintf("comment %q", r.comment))
	}
	return strings.Join(words, " ")
}

// printer knows what the registers hold.
type printer struct {
	regs [16]string
	mask [16]string
}

func (p *printer) load(o *op, text string) {
	if o.dst >= 0 {
		p.regs[o.dst], p.mask[o.dst] = text, ""
	}
}

// key joins what the registers hold from one on, up to another.
func (p *printer) key(from, to int8) string {
	var words []string
	for i := max(from, 0); i < int8(len(p.regs)) && (to < from || i < to); i++ {
		if p.regs[i] != "" {
			words = append(words, p.regs[i])
		}
	}
	return strings.Join(words, " . ")
}

func (p *printer) reg(n int8) string {
	if n < 0 {
		return ""
	}
	return p.regs[n]
}

// op returns the text of an expression that says something by itself.
func (p *printer) op(o *op, found string) string {
	switch o.name {
	case "payload":
		p.load(o, cmp.Or(firstBytes(o), payloadText(o)))
	case "meta":
		if o.src != regNone {
			name, value := metaName(o.num[0]), p.reg(o.src)
			if name == "priority" && value == "00000000" {
				value = "none"
			}
			return fmt.Sprintf("meta %s set %s", name, value)
		}
		if name := metaName(o.num[0]); strings.HasSuffix(name, "ifname") {
			p.load(o, name)
		} else {
			p.load(o, "meta "+name)
		}
	case "ct":
		p.load(o, ctName(o.num[0]))
	case "fib":
		p.load(o, fibText(o))
	case "numgen":
		text := fmt.Sprintf("numgen random mod %d", o.num[0])
		if o.num[2] != 0 {
			text += fmt.Sprintf(" offset %d", o.num[2])
		}
		p.load(o, text)
	case "bitwise":
		if o.dst >= 0 {
			p.regs[o.dst], p.mask[o.dst] = p.reg(o.src), o.mask
		}
	case "cmp", "range":
		return p.compare(o)
	case "lookup":
		return p.lookup(o, found)
	case "immediate":
		if o.dst == regVerdict {
			return verdictText(uint32(o.num[0]), o.text)
		}
		p.load(o, fmt.Sprintf("%x", o.value))
	case "dynset":
		text := fmt.Sprintf("update @%s { %s timeout %s", o.text, p.key(o.src, o.data), timeText(o.num[1]))
		if o.data != regNone {
			text += " : " + p.key(o.data, regNone)
		}
		return text + " }"
	case "nat":
		if o.num[0] == uint64(expr.NATTypeDestNAT) {
			return "dnat to " + p.reg(o.src)
		}
		return "snat to " + p.reg(o.src)
	case "masq":
		if o.num[0] != 0 {
			return "masquerade fully-random"
		}
		return "masquerade"
	case "reject":
		if o.num[0] == unix.NFT_REJECT_TCP_RST {
			return "reject with tcp reset"
		}
		return "reject"
	default:
		return o.name
	}
	return ""
}

func (p *printer) lookup(o *op, found string) string {
	key := p.key(o.src, regNone)
	set := "@" + o.text
	if found != "" {
		set += " { " + found + " }"
	}
	switch {
	case o.dst == regVerdict:
		return key + " vmap " + set
	case o.dst >= 0:
		for i := range p.regs {
			p.regs[i] = ""
		}
		p.load(o, key+" map "+set)
		return ""
	case o.num[0]&unix.NFT_LOOKUP_F_INV != 0:
		return key + " != " + set
	}
	return key + " " + set
}

func (p *printer) compare(o *op) string {
	what, mask := p.reg(o.src), ""
	if o.src >= 0 {
		mask = p.mask[o.src]
	}
	not := map[expr.CmpOp]string{expr.CmpOpNeq: "!= ", expr.CmpOpLt: "< ", expr.CmpOpLte: "<= ", expr.CmpOpGt: "> ", expr.CmpOpGte: ">= "}[expr.CmpOp(o.num[0])]
	zero := strings.Trim(o.value, "\x00") == ""
	switch {
	case mask != "" && zero && not != "":
		return what + " " + bitName(what, mask)
	case mask != "" && strings.HasSuffix(what, "addr"):
		a, _ := netip.AddrFromSlice([]byte(o.value))
		n := 0
		for _, b := range []byte(mask) {
			n += bits.OnesCount8(b)
		}
		return fmt.Sprintf("%s %s%v/%d", what, not, a, n)
	case strings.HasSuffix(what, "addr") && o.name == "cmp":
		addr := make([]byte, map[bool]int{true: 16, false: 4}[strings.HasPrefix(what, "ip6")])
		n := copy(addr, o.value)
		a, _ := netip.AddrFromSlice(addr)
		if n < len(addr) {
			return fmt.Sprintf("%s %s%v/%d", what, not, a, 8*n)
		}
		return fmt.Sprintf("%s %s%v", what, not, a)
	case strings.HasSuffix(what, "name"):
		text := strings.TrimRight(o.value, "\x00")
		if len(o.value) < unix.IFNAMSIZ {
			text += "*"
		}
		return fmt.Sprintf("%s %s%q", what, not, text)
	case strings.HasSuffix(what, "l4proto") && len(o.value) == 1:
		return fmt.Sprintf("%s %s%s", what, not, strings.ToLower(proxy.Protocol(o.value[0]).String()))
	case strings.HasPrefix(what, "fib") && strings.HasSuffix(what, " type") && len(o.value) == 4 && binary.NativeEndian.Uint32([]byte(o.value)) == unix.RTN_LOCAL:
		return what + " " + not + "local"
	}
	value := valueText(what, o.value)
	if o.name == "range" {
		value += "-" + valueText(what, o.mask)
	}
	if mask != "" {
		what += " & " + valueText(what, mask)
		not = cmp.Or(not, "== ")
	}
	return fmt.Sprintf("%s %s%s", what, not, value)
}

// valueText is what something is compared with, as nft prints it where it is a port, a mark or a family.
func valueText(what, value string) string {
	b := []byte(value)
	switch {
	case len(b) == 2 && (strings.HasSuffix(what, "port") || strings.HasSuffix(what, "proto-dst")):
		return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
	case len(b) == 4 && strings.HasSuffix(what, " mark"):
		return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b))
	case len(b) == 1 && what == "meta nfproto":
		if name := familyName(b[0]); name != "" {
			return "ipv" + map[string]string{"ip": "4", "ip6": "6"}[name]
		}
	case strings.HasSuffix(what, "addr"):
		if a, ok := netip.AddrFromSlice(b); ok {
			return a.String()
		}
	}
	return fmt.Sprintf("0x%x", value)
}

// bitName names the bits that are looked for: IP_CT_NEW of `ct state`, IPS_DST_NAT of `ct status`.
func bitName(what, mask string) string {
	if len(mask) == 4 {
		switch n := binary.NativeEndian.Uint32([]byte(mask)); {
		case what == "ct state" && n == ctStateNew:
			return "new"
		case what == "ct status" && n == ctStatusDNAT:
			return "dnat"
		}
	}
	return fmt.Sprintf("& 0x%x != 0", mask)
}

func payloadText(o *op) string {
	base, offset, length := o.num[0], o.num[1], o.num[2]
	switch {
	case base == uint64(expr.PayloadBaseNetworkHeader) && length == 4 && offset == 12:
		return "ip saddr"
	case base == uint64(expr.PayloadBaseNetworkHeader) && length == 4 && offset == 16:
		return "ip daddr"
	case base == uint64(expr.PayloadBaseNetworkHeader) && length == 16 && offset == 8:
		return "ip6 saddr"
	case base == uint64(expr.PayloadBaseNetworkHeader) && length == 16 && offset == 24:
		return "ip6 daddr"
	case base == uint64(expr.PayloadBaseTransportHeader) && length == 2 && offset == 0:
		return "th sport"
	case base == uint64(expr.PayloadBaseTransportHeader) && length == 2 && offset == 2:
		return "th dport"
	}
	return fmt.Sprintf("@%d,%d,%d", base, offset*8, length*8)
}

// firstBytes names the address that an expression loads the first bytes of, as nft does to compare a prefix; empty if it is none.
func firstBytes(o *op) string {
	whole := *o
	switch offset, n := o.num[1], o.num[2]; {
	case (offset == 12 || offset == 16) && n < 4:
		whole.num[2] = 4
	case (offset == 8 || offset == 24) && n > 1 && n < 16:
		whole.num[2] = 16
	default:
		return ""
	}
	if text := payloadText(&whole); strings.HasSuffix(text, "addr") {
		return text
	}
	return ""
}

func fibText(o *op) string {
	what := "daddr"
	if o.num[1]&unix.NFTA_FIB_F_SADDR != 0 {
		what = "saddr"
	}
	for _, flag := range []struct {
		bit  uint64
		text string
	}{{unix.NFTA_FIB_F_MARK, " . mark"}, {unix.NFTA_FIB_F_IIF, " . iif"}, {unix.NFTA_FIB_F_OIF, " . oif"}} {
		if o.num[1]&flag.bit != 0 {
			what += flag.text
		}
	}
	result := map[uint64]string{unix.NFT_FIB_RESULT_OIF: "oif", unix.NFT_FIB_RESULT_OIFNAME: "oifname", unix.NFT_FIB_RESULT_ADDRTYPE: "type"}
	return fmt.Sprintf("fib %s %s", what, result[o.num[0]])
}

func ctName(key uint64) string {
	names := map[expr.CtKey]string{expr.CtKeySTATE: "ct state", expr.CtKeySTATUS: "ct status", expr.CtKeyMARK: "ct mark",
		expr.CtKeyDSTIP: "ct original ip daddr", expr.CtKeyDSTIP6: "ct original ip6 daddr", expr.CtKeyPROTODST: "ct original proto-dst"}
	if s := names[expr.CtKey(key)]; s != "" {
		return s
	}
	return fmt.Sprintf("ct key %d", key)
}

// The codes of verdicts (linux/netfilter/nf_tables.h and linux/netfilter.h).
const (
	codeReturn   = 0xfffffffb // NFT_RETURN (-5)
	codeGoto     = 0xfffffffc // NFT_GOTO (-4)
	codeJump     = 0xfffffffd // NFT_JUMP (-3)
	codeContinue = 0xffffffff // NFT_CONTINUE (-1)
	codeQueue    = 3          // NF_QUEUE
)

func verdictText(code uint32, chain string) string {
	switch code {
	case nfDrop:
		return "drop"
	case nfAccept:
		return "accept"
	case codeReturn:
		return "return"
	case codeGoto:
		return "goto " + chain
	case codeJump:
		return "jump " + chain
	case codeContinue:
		return "continue"
	case codeQueue:
		return "queue"
	}
	return fmt.Sprintf("verdict %#x", code)
}
