package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// tableComment marks the layout of sets and chains. A table with another one is
// made anew; raise the number when a set's definition changes.
const tableComment = "Services of this node, kept by sluice (layout 1)"

// kernelTable is what the kernel has of our table.
type kernelTable struct {
	exists bool
	flags  uint32
	owner  uint32 // netlink port, 0 if none
	layout string // the comment
	// replaced says that the table was thrown away for a new one.
	replaced bool
	sets     map[string]kernelSet
	chains   map[string]hook // the zero hook for a regular chain
}

type kernelSet struct{ flags, keyLen, dataLen uint32 }

// readTable reads all but the elements.
func (w *Writer) readTable() (kernelTable, error) {
	var t kernelTable
	fam := nfproto(w.opts.Family)
	err := w.conn.dump(fam, unix.NFT_MSG_GETTABLE, nil, func() { t = kernelTable{} }, func(attrs []byte) {
		var one kernelTable
		name := ""
		eachAttr(attrs, func(typ uint16, v []byte) {
			switch typ {
			case unix.NFTA_TABLE_NAME:
				name = cString(v)
			case unix.NFTA_TABLE_FLAGS:
				one.flags = be32(v)
			case nftaTableOwner:
				one.owner = be32(v)
			case nftaTableUserdata:
				one.layout = commentOf(v)
			}
		})
		if name == TableName {
			one.exists = true
			t = one
		}
	})
	if err != nil {
		return t, w.explain(fmt.Errorf("list tables: %w", err))
	}
	if !t.exists {
		return t, nil
	}
	inTable := func(s *stream) { s.text(unix.NFTA_SET_TABLE, TableName) } // the table is attribute 1 of chains too
	err = w.conn.dump(fam, unix.NFT_MSG_GETSET, inTable, func() { t.sets = map[string]kernelSet{} }, func(attrs []byte) {
		var s kernelSet
		var name, table string
		eachAttr(attrs, func(typ uint16, v []byte) {
			switch typ {
			case unix.NFTA_SET_TABLE:
				table = cString(v)
			case unix.NFTA_SET_NAME:
				name = cString(v)
			case unix.NFTA_SET_FLAGS:
				s.flags = be32(v)
			case unix.NFTA_SET_KEY_LEN:
				s.keyLen = be32(v)
			case unix.NFTA_SET_DATA_LEN:
				s.dataLen = be32(v)
			}
		})
		if table == TableName {
			t.sets[name] = s
		}
	})
	if err != nil {
		return t, fmt.Errorf("list the sets of table %s: %w", TableName, err)
	}
	err = w.conn.dump(fam, unix.NFT_MSG_GETCHAIN, inTable, func() { t.chains = map[string]hook{} }, func(attrs []byte) {
		var h hook
		var name, table string
		eachAttr(attrs, func(typ uint16, v []byte) {
			switch typ {
			case unix.NFTA_CHAIN_TABLE:
				table = cString(v)
			case unix.NFTA_CHAIN_NAME:
				name = cString(v)
			case unix.NFTA_CHAIN_TYPE:
				h.typ = cString(v)
			case unix.NFTA_CHAIN_HOOK:
				eachAttr(v, func(typ uint16, v []byte) {
					switch typ {
					case unix.NFTA_HOOK_HOOKNUM:
						h.num = be32(v)
					case unix.NFTA_HOOK_PRIORITY:
						h.priority = int32(be32(v))
					}
				})
			}
		})
		if table == TableName {
			t.chains[name] = h
		}
	})
	if err != nil {
		return t, fmt.Errorf("list the chains of table %s: %w", TableName, err)
	}
	return t, nil
}

// fits says why the kernel's table cannot be gone on with; empty if it can.
func (t *kernelTable) fits(defs [setCount]setDef, chains []chainDef) string {
	if t.layout != tableComment {
		return fmt.Sprintf("its layout is %q", t.layout)
	}
	if len(t.sets) == 0 && len(t.chains) == 0 {
		return "" // just created
	}
	for i := range defs {
		d := &defs[i]
		got, ok := t.sets[d.name]
		if !ok {
			return "set " + d.name + " is missing"
		}
		want := kernelSet{flags: d.flags(), keyLen: length(d.key)}
		if d.data != nil {
			want.dataLen = length(d.data)
		} else if d.verdict {
			want.dataLen = got.dataLen // the size of a kernel struct
		}
		if got != want {
			return "set " + d.name + " is of another type"
		}
	}
	for _, c := range chains {
		got, ok := t.chains[c.name]
		want := hook{}
		if c.hook != nil {
			want = *c.hook
		}
		if ok && got != want {
			return "chain " + c.name + " has another hook"
		}
	}
	return ""
}

// readElements calls fn for every element of a set.
func (w *Writer) readElements(id setID, restart func(), fn func(k elemKey, v elemValue, expires time.Duration)) error {
	name := w.batch.defs[id].name
	filter := func(s *stream) {
		s.text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		s.text(unix.NFTA_SET_ELEM_LIST_SET, name)
	}
	err := w.conn.dump(nfproto(w.opts.Family), unix.NFT_MSG_GETSETELEM, filter, restart, func(attrs []byte) {
		eachAttr(attrs, func(typ uint16, list []byte) {
			if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				return
			}
			eachAttr(list, func(_ uint16, e []byte) {
				k, v, expires := parseElement(id, e)
				fn(k, v, expires)
			})
		})
	})
	if err != nil {
		return fmt.Errorf("read set %s of table %s: %w", name, TableName, err)
	}
	return nil
}

// forever is the expiry of an element without one.
const forever = time.Duration(1<<63 - 1)

func parseElement(id setID, e []byte) (k elemKey, v elemValue, expires time.Duration) {
	k.set = id
	expires = forever
	eachAttr(e, func(typ uint16, a []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			eachAttr(a, func(_ uint16, b []byte) { k.n = uint8(copy(k.b[:], b)) })
		case nftaSetElemKeyEnd:
			eachAttr(a, func(_ uint16, b []byte) {
				n := 4
				if len(b) > 24 { // IPv6 frontend . source
					n = 16
				}
				v.end, _ = netip.AddrFromSlice(b[max(0, len(b)-n):])
			})
		case unix.NFTA_SET_ELEM_DATA:
			eachAttr(a, func(typ uint16, b []byte) {
				if typ == unix.NFTA_DATA_VALUE {
					v.n = uint8(copy(v.b[:], b))
					return
				}
				v.verdict, v.chain = parseVerdict(b)
			})
		case unix.NFTA_SET_ELEM_USERDATA:
			v.comment = commentOf(a)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			if len(a) == 8 {
				expires = time.Duration(binary.BigEndian.Uint64(a)) * time.Millisecond
			}
		}
	})
	return k, v, expires
}

func parseVerdict(b []byte) (verdict, chain) {
	v := noVerdict
	c := chain{}
	eachAttr(b, func(typ uint16, a []byte) {
		switch typ {
		case unix.NFTA_VERDICT_CODE:
			for _, known := range []verdict{verdictGoto, verdictJump, verdictDrop} {
				if be32(a) == known.code() {
					v = known
				}
			}
		case unix.NFTA_VERDICT_CHAIN:
			c = parseChain(cString(a))
		}
	})
	return v, c
}

// parseChain is the reverse of chain.String; an unknown name gives the zero chain.
func parseChain(name string) chain {
	for kind := lb; kind <= reject; kind++ {
		if c := (chain{kind: kind}); !c.counted() {
			if name == chainNames[kind] {
				return c
			}
			continue
		}
		prefix := chainNames[kind]
		if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
			continue
		}
		if n, ok := parseNumber(name[len(prefix):]); ok {
			return chain{kind, n}
		}
	}
	return chain{}
}

func parseNumber(s string) (uint32, bool) {
	var n uint64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || n > 1<<32 {
			return 0, false
		}
		n = n*10 + uint64(s[i]-'0')
	}
	return uint32(n), len(s) > 0 && n < 1<<32
}

// commentOf returns the comment in libnftnl's user data.
func commentOf(b []byte) string { return string(commentBytes(b)) }

func commentBytes(b []byte) []byte {
	for len(b) >= 2 {
		n := 2 + int(b[1])
		if n > len(b) {
			break
		}
		if b[0] == udataComment {
			text, _, _ := bytes.Cut(b[2:n], []byte{0})
			return text
		}
		b = b[n:]
	}
	return nil
}

func be32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// parseFrontend reads the frontend at the head of a key, and the slot behind it if there is one.
func parseFrontend(k *elemKey) (f proxy.Frontend, slot uint32) {
	n := 4
	if k.n > 20 {
		n = 16
	}
	f.Addr, _ = netip.AddrFromSlice(k.b[:n])
	f.Protocol = proxy.Protocol(k.b[n])
	f.Port = binary.BigEndian.Uint16(k.b[n+4:])
	return f, binary.NativeEndian.Uint32(k.b[n+8:])
}

// readSlots reads the endpoints map. It is empty if there is no table.
func (w *Writer) readSlots() (map[proxy.Frontend]*kernelSlots, error) {
	all := map[proxy.Frontend]*kernelSlots{}
	err := w.readElements(endpoints, func() { clear(all) }, func(k elemKey, v elemValue, _ time.Duration) {
		f, slot := parseFrontend(&k)
		s := all[f]
		if s == nil {
			s = &kernelSlots{}
			all[f] = s
		}
		if slot >= localSlots {
			s.local = putSlot(s.local, slot-localSlots, v.endpoint())
		} else {
			s.pool = putSlot(s.pool, slot, v.endpoint())
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return all, err
}

type kernelSlots struct{ pool, local []netip.AddrPort }

func putSlot(s []netip.AddrPort, i uint32, e netip.AddrPort) []netip.AddrPort {
	if i >= localSlots { // not ours
		return s
	}
	for uint32(len(s)) <= i {
		s = append(s, netip.AddrPort{})
	}
	s[i] = e
	return s
}
