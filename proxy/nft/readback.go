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

// maxReadings is how often a set is read that grows or shrinks meanwhile, with growing pauses, which are 1.5 s together.
const maxReadings = 12

// readElements calls fn for every element of a set, which tells whether it had that one already. A set that was just written grows or
// shrinks in the kernel's own time (rhashtable's deferred worker), and a list of it that is made meanwhile has some elements twice and
// lacks as many others: it is made again.
func (w *Writer) readElements(id setID, restart func(), fn func(k elemKey, v elemValue, expires time.Duration) (twice bool)) error {
	set := &w.batch.defs[id]
	for n := range maxReadings {
		moving := false
		each := func(e []byte) { moving = fn(parseElement(id, e)) || moving }
		begin := func() {
			moving = false
			restart()
		}
		err := w.conn.dump(nfproto(w.opts.Family), unix.NFT_MSG_GETSETELEM, set.inTable(TableName), begin, func(attrs []byte) { eachElement(attrs, each) })
		if err != nil {
			return fmt.Errorf("read set %s of table %s: %w", set.name, TableName, err)
		}
		if !moving {
			break
		}
		time.Sleep(min(10*time.Millisecond<<n, 160*time.Millisecond))
	}
	return nil
}

// eachElement calls fn for every element in a message's attributes.
func eachElement(attrs []byte, fn func(e []byte)) {
	eachAttr(attrs, func(typ uint16, list []byte) {
		if typ == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			eachAttr(list, func(_ uint16, e []byte) { fn(e) })
		}
	})
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
	err := w.readElements(endpoints, func() { clear(all) }, func(k elemKey, v elemValue, _ time.Duration) bool {
		f, slot := parseFrontend(&k)
		s := all[f]
		if s == nil {
			s = &kernelSlots{}
			all[f] = s
		}
		list := &s.pool
		if slot >= localSlots {
			list, slot = &s.local, slot-localSlots
		}
		twice := slot < uint32(len(*list)) && (*list)[slot].IsValid()
		*list = putSlot(*list, slot, v.endpoint())
		return twice
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
