package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"sluice/proxy"
)

// spread puts a pool's chain together: first the clients that were here before, then the others by
// chance. head has added its own rules to c already. Pools of many endpoints are a tree of chains,
// each of which holds maxRules of the next.
func spread(c *chain, p proxy.Protocol, pool *proxy.Pool, affinity uint32, emit func(*chain)) {
	slots := pool.Slots
	if affinity > 0 {
		for _, e := range slots {
			c.rule().protocol(p).add(" -m recent --update --seconds ", strconv.FormatUint(uint64(affinity), 10), " --reap")
			recentName(c, pool, e).dnat(e)
		}
	}
	sticky := affinity > 0
	tree(c, p, pool, sticky, level(len(slots)), 0, len(slots))
	t, base := c.table, c.name
	emit(c)
	for l := level(len(slots)) - 1; l >= 0; l-- {
		size := width(l + 1)
		for lo := 0; lo < len(slots); lo += size {
			c.begin(t, groupName(base, l, lo/size))
			tree(c, p, pool, sticky, l, lo, min(lo+size, len(slots)))
			emit(c)
		}
	}
}

// level is the number of levels below the first chain of a pool of n slots.
func level(n int) int {
	l := 0
	for ; n > width(l+1); l++ {
	}
	return l
}

// width is the number of slots below one rule of a chain that is l levels above the lowest.
func width(l int) int {
	n := 1
	for range l {
		n *= maxRules
	}
	return n
}

// groupName is the name of a chain below a pool's first one.
func groupName(base string, l, i int) string { return fmt.Sprintf("%s-%d%x", base, l, i) }

// tree adds rules that choose one of the slots from lo to hi, or the chains that hold them.
func tree(c *chain, p proxy.Protocol, pool *proxy.Pool, sticky bool, l, lo, hi int) {
	size := width(l)
	base := c.name
	if l > 0 {
		base = poolChain(c.name)
	}
	for at := lo; at < hi; at += size {
		next := min(at+size, hi)
		c.rule()
		if l == 0 {
			c.protocol(p)
		}
		if next < hi {
			c.add(" -m statistic --mode random --probability ", probability(float64(next-at)/float64(hi-at)))
		}
		if l > 0 {
			c.gotoChain(groupName(base, l-1, at/size))
			continue
		}
		if sticky {
			recentName(c.add(" -m recent --set"), pool, pool.Slots[at])
		}
		c.dnat(pool.Slots[at])
	}
}

// poolChain returns the name of a pool's first chain, given that of one of its chains.
func poolChain(name string) string {
	const n = len(prefix) + 4 + hashLength
	return name[:min(n, len(name))]
}

// probability spells a probability as iptables-save does, which has it from the kernel in 31 bits.
func probability(p float64) string {
	const one = 1 << 31
	return strconv.FormatFloat(math.Round(p*one)/one, 'f', 11, 64)
}

// recentName names the list of the clients that have an endpoint: by pool, whichever address they used.
func recentName(c *chain, pool *proxy.Pool, e netip.AddrPort) *chain {
	mask := " --mask 255.255.255.255 --rsource"
	if c.family == proxy.IPv6 {
		mask = " --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource"
	}
	c.text = fmt.Appendf(c.text, " --name sluice-%08x-", pool.AffinityID)
	c.text = e.AppendTo(c.text)
	return c.add(mask)
}
