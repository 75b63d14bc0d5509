package proxy

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// nextSlots puts the endpoints of want, which is sorted and has no duplicates,
// into slots, given the slots of before. What stays keeps its slot. Holes are
// filled with new endpoints first and then by the last slots, so that one
// endpoint gone changes two slots, and one in the place of another changes one.
func nextSlots(prev, want []netip.AddrPort) []netip.AddrPort {
	if len(want) == 0 {
		return nil
	}
	next := make([]netip.AddrPort, len(want))
	placed := make([]bool, len(want)) // by index in want
	var tail []int                    // indexes in want of survivors that have to move down
	for i, ep := range prev {
		j, found := slices.BinarySearchFunc(want, ep, netip.AddrPort.Compare)
		if !found || placed[j] {
			continue
		}
		placed[j] = true
		if i < len(next) {
			next[i] = ep
		} else {
			tail = append(tail, j)
		}
	}
	hole := 0
	put := func(ep netip.AddrPort) {
		for next[hole].IsValid() {
			hole++
		}
		next[hole] = ep
	}
	for j, ep := range want {
		if !placed[j] {
			put(ep)
		}
	}
	for _, j := range slices.Backward(tail) {
		put(want[j])
	}
	return next
}

// affinityID is the AffinityID that a pool of a Service port wants: the same at
// every start and in both families, so that affinity entries in the kernel stay
// good. The lowest bit tells the pool of local endpoints from the cluster's.
func affinityID(port ServicePortName, localPool bool) uint32 {
	h := fnv.New32a()
	// A NUL is in no name, so that no two ports hash the same text.
	for _, s := range []string{port.Namespace, port.Name, port.Port, port.Protocol.String()} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	id := h.Sum32() &^ 1
	if id == 0 {
		id = 2 // 0 means no affinity
	}
	if localPool {
		id |= 1
	}
	return id
}
