package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// op is one expression of a rule, in a form that is the same whether it was encoded here or comes from the kernel, which adds
// defaults and numbers registers in its own way. Two ops do the same if they are equal.
type op struct {
	// name is the expression's in the kernel: payload, lookup, ...
	name string
	// Registers by what they are for, as numbers of 32-bit registers. See regNone.
	src, dst, data int8
	// num are the numbers, in the order of fields.
	num [3]uint64
	// text names a set or a chain.
	text string
	// value and mask are bytes: what is compared or loaded; for bitwise the mask, and in value what is xor-ed.
	value, mask string
	// extra is anything that fields does not know. Such an op cannot be judged.
	extra string
}

// Registers that are none of the sixteen.
const (
	regNone    = -1
	regVerdict = -2
)

// field says what an attribute is.
type field uint8

const (
	unknownField field = iota
	ignored
	srcRegister
	dstRegister
	dataRegister
	number0
	number1
	number2
	name
	bytesValue // nested: NFTA_DATA_VALUE or NFTA_DATA_VERDICT
	bytesMask
)

// fields are the attributes of the expressions of our rules by number, beginning with 1 (enum nft_*_attributes in
// linux/netfilter/nf_tables.h).
var fields = map[string][]field{
	"payload":   {dstRegister, number0, number1, number2, srcRegister},
	"meta":      {dstRegister, number0, srcRegister},
	"ct":        {dstRegister, number0, number1, srcRegister},
	"lookup":    {name, srcRegister, dstRegister, ignored, number0},
	"nat":       {number0, number1, srcRegister, ignored, dataRegister, ignored, number2},
	"masq":      {number0, srcRegister, ignored},
	"immediate": {dstRegister, bytesValue},
	"bitwise":   {srcRegister, dstRegister, number0, bytesMask, bytesValue, number1},
	"cmp":       {srcRegister, number0, bytesValue},
	"dynset":    {name, ignored, number0, srcRegister, dataRegister, number1, unknownField, ignored, number2},
	"fib":       {dstRegister, number0, number1},
	"reject":    {number0, number1},
	"numgen":    {dstRegister, number0, number1, number2},
	"range":     {srcRegister, number0, bytesValue, bytesMask}, // from and to
}

// natImplied are flags of NFTA_NAT_FLAGS that the kernel sets by itself: NF_NAT_RANGE_MAP_IPS and
// NF_NAT_RANGE_PROTO_SPECIFIED (linux/netfilter/nf_nat.h).
const natImplied = 1 | 2

// parseOp reads an expression (NFTA_EXPR_NAME and NFTA_EXPR_DATA).
func parseOp(b []byte) op {
	o := op{src: regNone, dst: regNone, data: regNone}
	eachAttr(b, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_EXPR_NAME:
			o.name = cString(v)
		case unix.NFTA_EXPR_DATA:
			eachAttr(v, o.attribute)
		}
	})
	if _, known := fields[o.name]; !known {
		o.extra = "?" + o.extra
	}
	if o.name == "nat" {
		o.num[2] &^= natImplied
	}
	return o
}

func (o *op) attribute(typ uint16, v []byte) {
	what := unknownField
	if list := fields[o.name]; typ > 0 && int(typ) <= len(list) {
		what = list[typ-1]
	}
	switch what {
	case srcRegister:
		o.src = parseRegister(v)
	case dstRegister:
		o.dst = parseRegister(v)
	case dataRegister:
		o.data = parseRegister(v)
	case number0, number1, number2:
		o.num[what-number0] = parseInteger(v)
	case name:
		o.text = cString(v)
	case bytesMask:
		eachAttr(v, func(_ uint16, b []byte) { o.mask = string(b) })
	case bytesValue:
		eachAttr(v, func(typ uint16, b []byte) {
			if typ == unix.NFTA_DATA_VERDICT {
				o.verdict(b)
				return
			}
			o.value = string(b)
		})
	case unknownField:
		if parseInteger(v) != 0 || len(v) > 8 {
			o.extra += fmt.Sprintf("%d=%x ", typ, v)
		}
	}
}

func metaName(key uint64) string {
	names := map[expr.MetaKey]string{expr.MetaKeyPRIORITY: "priority", expr.MetaKeyMARK: "mark", expr.MetaKeyIIFNAME: "iifname",
		expr.MetaKeyOIFNAME: "oifname", expr.MetaKeyNFPROTO: "nfproto", expr.MetaKeyL4PROTO: "l4proto"}
	if s := names[expr.MetaKey(key)]; s != "" {
		return s
	}
	return strconv.FormatUint(key, 10)
}

// timeText is a time of so many milliseconds as nft prints it: 1d, 1h30m.
func timeText(ms uint64) (text string) {
	for _, unit := range [...]struct {
		ms   uint64
		name string
	}{{86_400_000, "d"}, {3_600_000, "h"}, {60_000, "m"}, {1000, "s"}, {1, "ms"}} {
		if n := ms / unit.ms; n > 0 {
			text += strconv.FormatUint(n, 10) + unit.name
		}
		ms %= unit.ms
	}
	return cmp.Or(text, "0s")
}

// verdict reads what an immediate loads into the verdict register: its code into the first number.
func (o *op) verdict(b []byte) {
	eachAttr(b, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_VERDICT_CODE:
			o.num[0] = uint64(be32(v))
		case unix.NFTA_VERDICT_CHAIN:
			o.text = cString(v)
		}
	})
}

// parseRegister reads a register: one of the four of 128 bits, which the kernel prefers, or of the sixteen of 32.
func parseRegister(v []byte) int8 {
	switch r := be32(v); {
	case r == unix.NFT_REG_VERDICT:
		return regVerdict
	case r <= unix.NFT_REG_4:
		return int8(r-1) * 4
	case r >= unix.NFT_REG32_00 && r <= unix.NFT_REG32_15:
		return int8(r - unix.NFT_REG32_00)
	}
	return regNone
}

func parseInteger(v []byte) uint64 {
	var b [8]byte
	if len(v) > 8 {
		return 0
	}
	copy(b[8-len(v):], v)
	return binary.BigEndian.Uint64(b[:])
}

// parsedRule is a rule in the form of op.
type parsedRule struct {
	ops     []op
	comment string
}

// parseRule reads the attributes of a rule that the kernel sent.
func parseRule(attrs []byte) (r parsedRule) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_RULE_EXPRESSIONS:
			eachAttr(v, func(_ uint16, e []byte) { r.ops = append(r.ops, parseOp(e)) })
		case unix.NFTA_RULE_USERDATA:
			r.comment = commentOf(v)
		}
	})
	return r
}

// parsed is the rule as the kernel has it once it is written.
func (r rule) parsed(f proxy.Family) (parsedRule, error) {
	p := parsedRule{comment: r.comment}
	for _, e := range r.exprs {
		b, err := expr.Marshal(nfproto(f), e)
		if err != nil {
			return p, err
		}
		p.ops = append(p.ops, parseOp(b))
	}
	return p, nil
}

// readRules reads the rules of all chains of our table.
func (w *Writer) readRules() (all map[string][]parsedRule, err error) {
	err = w.eachInTable(unix.NFT_MSG_GETRULE, unix.NFTA_RULE_CHAIN, func() { all = map[string][]parsedRule{} },
		func(chain string, attrs []byte) { all[chain] = append(all[chain], parseRule(attrs)) })
	if err != nil {
		return nil, fmt.Errorf("list the rules of table %s: %w", TableName, err)
	}
	return all, nil
}
