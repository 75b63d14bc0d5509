package proxy

import (
	"net/netip"
	"slices"
)

// Merge folds deltas that came later into d, as if all had been one change: a
// frontend that changed twice goes from its first route to its last, and what
// came and went again is in no list. It is linear in all of the deltas together: give it
// those of a burst in one call. They belong to d from then on.
func Merge(d *Delta, later ...Delta) {
	if d.Empty() && len(later) == 1 {
		*d = later[0]
		return
	}
	d.Frontends = mergeFrontends(d.Frontends, later)
	mergeAddrs(&d.AddedClusterIPs, &d.RemovedClusterIPs, later,
		func(l *Delta) (_, _ []netip.Addr) { return l.AddedClusterIPs, l.RemovedClusterIPs })
	mergeAddrs(&d.AddedLocalEndpoints, &d.RemovedLocalEndpoints, later,
		func(l *Delta) (_, _ []netip.Addr) { return l.AddedLocalEndpoints, l.RemovedLocalEndpoints })
}

func mergeFrontends(merged []FrontendChange, later []Delta) []FrontendChange {
	n := len(merged)
	for i := range later {
		n += len(later[i].Frontends)
	}
	index := make(map[Frontend]int, n)
	for i := range merged {
		index[merged[i].Frontend] = i
	}
	merged = slices.Grow(merged, n-len(merged))
	for i := range later {
		for _, c := range later[i].Frontends {
			if j, known := index[c.Frontend]; known {
				merged[j].New = c.New
				continue
			}
			index[c.Frontend] = len(merged)
			merged = append(merged, c)
		}
	}
	return slices.DeleteFunc(merged, func(c FrontendChange) bool { return c.Old.equal(c.New) })
}

// mergeAddrs folds additions to and removals from a set of addresses. of picks them from a delta.
func mergeAddrs(added, removed *[]netip.Addr, later []Delta, of func(*Delta) (added, removed []netip.Addr)) {
	order, net := []netip.Addr{}, map[netip.Addr]int{}
	count := func(list []netip.Addr, by int) {
		for _, a := range list {
			net[a] += by
		}
		order = append(order, list...)
	}
	count(*added, 1)
	count(*removed, -1)
	for i := range later {
		a, r := of(&later[i])
		count(a, 1)
		count(r, -1)
	}
	*added, *removed = nil, nil
	for _, a := range order {
		switch {
		case net[a] > 0:
			*added = append(*added, a)
		case net[a] < 0:
			*removed = append(*removed, a)
		}
		net[a] = 0 // each goes into one list, once
	}
}
