package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// sourceRanges reads loadBalancerSourceRanges: sorted, none inside another. Nil
// lets all sources pass, which is also what ranges of the other family alone mean.
func (p *planner) sourceRanges() []netip.Prefix {
	var ranges []netip.Prefix
	for _, s := range p.svc.Spec.LoadBalancerSourceRanges {
		s = strings.TrimSpace(s) // the API server's validation allows blanks
		if s == "" {
			continue
		}
		r, ok := parsePrefix(s)
		if !ok {
			p.ignore("loadBalancerSourceRanges: %q is not a CIDR", s)
			continue
		}
		if FamilyOf(r.Addr()) == p.node.Family {
			ranges = append(ranges, r)
		}
	}
	if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		return nil
	}
	return disjoint(ranges)
}

// disjoint sorts ranges and removes those that lie inside another.
func disjoint(ranges []netip.Prefix) []netip.Prefix {
	slices.SortFunc(ranges, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	kept := ranges[:0]
	for _, r := range ranges {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(r.Addr()) {
			kept = append(kept, r)
		}
	}
	return slices.Clone(kept) // kept in plans: no spare room
}

// admitVIP adds the VIP itself to ranges that let one of this node's addresses
// in: cloud providers often make the VIP a local address, and a request from this
// node to it then has the VIP as its source.
func admitVIP(ranges []netip.Prefix, vip netip.Addr, node []netip.Addr) []netip.Prefix {
	contain := func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
	}
	if !slices.ContainsFunc(node, contain) {
		return ranges
	}
	with := make([]netip.Prefix, 0, len(ranges)+1)
	return disjoint(append(append(with, ranges...), netip.PrefixFrom(vip, vip.BitLen())))
}
