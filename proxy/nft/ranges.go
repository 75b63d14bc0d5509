package nft

import (
	"net/netip"
	"slices"

	"sluice/proxy"
)

// manyRanges is from how many removals on the set of source ranges is made anew. The kernel
// takes a time for each that grows with the set (nft_set_pipapo), and lets nobody
// else change rules meanwhile: a thousand of a thousand would take two seconds. To throw
// the set away and fill another, in the same transaction, takes milliseconds.
const manyRanges = 64

// sourceRangeSet is what @source-ranges holds: the first key of each range, and its end.
type sourceRangeSet map[elemKey]netip.Addr

// note follows one element that comes or goes.
func (s sourceRangeSet) note(k elemKey, v elemValue, comes bool) {
	switch {
	case k.set != sourceRanges:
	case comes:
		s[k] = v.end
	case s[k] == v.end: // else the same key has got another end
		delete(s, k)
	}
}

// renewRanges replaces the removals and additions of source ranges in the batch by a new set.
func (w *Writer) renewRanges(b *batch) error {
	b.dropElements(sourceRanges)
	if err := w.newRangeSet(b); err != nil {
		return err
	}
	for k, end := range w.ranges {
		b.addElement(k, elemValue{end: end})
	}
	return nil
}

// newRangeSet puts an empty set in the place of the one there is. The rules that look into it leave and come with it.
func (w *Writer) newRangeSet(b *batch) error {
	using := slices.DeleteFunc(w.rules.chains(), func(c chainDef) bool { return !c.usesRanges })
	for _, c := range using {
		w.putChain(b, c) // someone may have deleted it
		if err := b.setRules(c.name, nil); err != nil {
			return err
		}
	}
	b.deleteSet(sourceRanges)
	b.newSet(sourceRanges)
	for _, c := range using {
		if err := b.setRules(c.name, c.rules); err != nil {
			return err
		}
	}
	return nil
}

// staleRanges counts the source ranges among have that the state does not want.
func staleRanges(have map[elemKey]digest, s *proxy.State) int {
	n := 0
	for k := range have {
		if k.set == sourceRanges {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	for f, r := range s.Routes() {
		if r.SourceRanges == nil {
			continue
		}
		elementsOf(f, r, func(k elemKey, _ elemValue) {
			if _, had := have[k]; had && k.set == sourceRanges {
				n--
			}
		})
	}
	return n
}
