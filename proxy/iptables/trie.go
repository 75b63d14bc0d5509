package iptables

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"

	"sluice/proxy"
)

// maxRules is how many rules lead on from one chain, and how many frontends share one at most.
const maxRules = 16

// trie leads packets in steps to the rule of their frontend. Where more than maxRules
// frontends share a chain, the chain becomes one step: it looks at the first digit (four bits) of address,
// protocol and port in which they differ, and leads to one chain for each of its values.
//
// A chain is named after the digits that all it holds have in common. What is in it depends on
// nothing but the frontends with these digits, so that a change concerns the chains on its way only.
type trie struct {
	table table
	// root is the name of the first chain. Those of the others begin with the prefix and its next letter (SLUICE-S-).
	root string
	// entries are sorted. They are the trie: chains are computed from them.
	entries []entry
	// addrs is true if entries are addresses, without protocol and port.
	addrs bool
	// leaf adds the rules of one entry.
	leaf func(*chain, entry)
}

// entry is one frontend, or one address.
type entry struct {
	proxy.Frontend
	route *proxy.Route // nil for an address
}

func compareFrontends(a, b proxy.Frontend) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(protocolDigit(a.Protocol), protocolDigit(b.Protocol)), cmp.Compare(a.Port, b.Port))
}

// protocolDigit stands for a protocol as one digit: the last of its number, which differs for TCP, UDP and SCTP.
func protocolDigit(p proxy.Protocol) byte { return byte(p) & 0xf }

func addrDigits(a netip.Addr) int { return a.BitLen() / 4 }

// digit returns the i-th digit of an entry: those of the address, one for the protocol, four of the port.
func digit(f *proxy.Frontend, i int) byte {
	n := addrDigits(f.Addr)
	switch {
	case i == n:
		return protocolDigit(f.Protocol)
	case i > n:
		return byte(f.Port>>(12-4*(i-n-1))) & 0xf
	case n == 8:
		b := f.Addr.As4()
		return b[i/2] >> (4 - i%2*4) & 0xf
	}
	b := f.Addr.As16()
	return b[i/2] >> (4 - i%2*4) & 0xf
}

// common returns how many digits two entries have in common.
func common(a, b *proxy.Frontend) int {
	n := addrDigits(a.Addr) + 5
	for i := range n {
		if digit(a, i) != digit(b, i) {
			return i
		}
	}
	return n
}

// node is a chain of a trie: the entries whose first digits are those of a frontend.
type node struct {
	of     proxy.Frontend
	digits int // 0 for the root
	lo, hi int // the entries
}

func (n node) len() int { return n.hi - n.lo }

func (t *trie) rootNode() node { return node{hi: len(t.entries)} }

// split returns the first digit in which the entries of a node differ; ok is false if the node is not split.
func (t *trie) split(n node) (at int, ok bool) {
	if n.len() <= maxRules {
		return 0, false
	}
	return common(&t.entries[n.lo].Frontend, &t.entries[n.hi-1].Frontend), true
}

// groups calls fn for the parts of a node, one for each value of a digit.
func (t *trie) groups(n node, at int, fn func(node)) {
	for lo := n.lo; lo < n.hi; {
		first := &t.entries[lo].Frontend
		value := digit(first, at)
		hi := lo + sort.Search(n.hi-lo, func(i int) bool { return digit(&t.entries[lo+i].Frontend, at) > value })
		fn(node{*first, at + 1, lo, hi})
		lo = hi
	}
}

// all calls fn for every chain of the trie under a node, the node first.
func (t *trie) all(n node, fn func(node)) {
	fn(n)
	if at, ok := t.split(n); ok {
		t.groups(n, at, func(g node) {
			if g.len() > 1 {
				t.all(g, fn)
			}
		})
	}
}

// near calls fn for the chains on the way to a frontend, and for those that they lead to.
func (t *trie) near(f *proxy.Frontend, fn func(node)) {
	n := t.rootNode()
	fn(n)
	for {
		at, ok := t.split(n)
		if !ok {
			return
		}
		onWay := common(f, &t.entries[n.lo].Frontend) >= at
		var next node
		t.groups(n, at, func(g node) {
			if g.len() == 1 {
				return
			}
			fn(g)
			if onWay && digit(&g.of, at) == digit(f, at) {
				next = g
			}
		})
		if next.len() == 0 {
			return
		}
		n = next
	}
}

// find returns the chain that is named after the first digits of a frontend, as it is now.
func (t *trie) find(f *proxy.Frontend, digits int) (node, bool) {
	n := t.rootNode()
	for n.digits != digits {
		at, ok := t.split(n)
		if !ok || at >= digits || common(f, &t.entries[n.lo].Frontend) < at {
			return node{}, false
		}
		var next node
		t.groups(n, at, func(g node) {
			if digit(&g.of, at) == digit(f, at) {
				next = g
			}
		})
		if next.len() < 2 {
			return node{}, false
		}
		n = next
	}
	return n, true
}

// name returns the name of a node's chain: the digits, in hexadecimal, where that is short enough.
func (t *trie) name(n node) string {
	if n.digits == 0 {
		return t.root
	}
	const hex = "0123456789abcdef"
	var digits []byte
	addr := addrDigits(n.of.Addr)
	for i := range n.digits {
		if i == addr || i == addr+1 {
			digits = append(digits, '-')
		}
		digits = append(digits, hex[digit(&n.of, i)])
	}
	head := t.root[:len(prefix)+1] + "-"
	if len(head)+len(digits) > maxChainName {
		return head + hashed(string(digits))
	}
	return head + string(digits)
}

// render puts a node's rules together.
func (t *trie) render(c *chain, n node) {
	c.begin(t.table, t.name(n))
	at, ok := t.split(n)
	if !ok {
		for _, e := range t.entries[n.lo:n.hi] {
			t.leaf(c, e)
		}
		return
	}
	t.groups(n, at, func(g node) {
		if g.len() == 1 {
			t.leaf(c, t.entries[g.lo])
			return
		}
		t.step(c.rule(), g).gotoChain(t.name(g))
	})
}

// step matches what has a node's digits.
func (t *trie) step(c *chain, n node) *chain {
	addr := addrDigits(n.of.Addr)
	p := netip.PrefixFrom(n.of.Addr, 4*min(n.digits, addr))
	c.to(p.Masked())
	if n.digits > addr {
		c.protocol(n.of.Protocol)
	}
	if portDigits := n.digits - addr - 1; portDigits > 0 {
		rest := uint16(1)<<(16-4*portDigits) - 1
		c.ports(n.of.Protocol, n.of.Port&^rest, n.of.Port|rest)
	}
	return c
}

func (t *trie) search(f proxy.Frontend) (int, bool) {
	return slices.BinarySearchFunc(t.entries, f, func(e entry, f proxy.Frontend) int { return compareFrontends(e.Frontend, f) })
}

// set adds, replaces or, if present is false, removes an entry.
func (t *trie) set(e entry, present bool) {
	i, found := t.search(e.Frontend)
	switch {
	case present && found:
		t.entries[i] = e
	case present:
		t.entries = slices.Insert(t.entries, i, e)
	case found:
		t.entries = slices.Delete(t.entries, i, i+1)
	}
}

// sort puts entries that were appended in order.
func (t *trie) sort() {
	slices.SortFunc(t.entries, func(a, b entry) int { return compareFrontends(a.Frontend, b.Frontend) })
}
