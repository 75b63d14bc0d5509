package proxy

import "net/netip"

// addrCounts is a set of addresses that counts how often each was put in.
type addrCounts map[netip.Addr]int32

// replace takes the addresses of old out and puts those of new in. It returns
// the addresses that the set has gained and lost.
func (c addrCounts) replace(old, new []netip.Addr) (gained, lost []netip.Addr) {
	for _, a := range new {
		if c[a]++; c[a] == 1 {
			gained = append(gained, a)
		}
	}
	// What is in both was counted up before, so that it never reaches 0 in between.
	for _, a := range old {
		if c[a]--; c[a] == 0 {
			delete(c, a)
			lost = append(lost, a)
		}
	}
	return gained, lost
}
