package nft

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// foreignSet is a set or map of another program.
type foreignSet struct {
	table foreignTable
	name  string
}

// foreignElements are what a set holds.
type foreignElements struct {
	keyLen int
	// intervals: elements are the beginnings of intervals, in order, each up to the next.
	intervals bool
	list      []foreignElement
	// catchall is the element for every other key; nil if there is none.
	catchall *foreignElement
}

// foreignElement is an element: a key, or in a set of concatenations with ranges the keys from key to end.
type foreignElement struct {
	key, end []byte
	// ends: an interval ends here. What comes behind it is not in the set.
	ends    bool
	verdict ruling
	data    []byte
}

// The flags of an element (enum nft_set_elem_flags in linux/netfilter/nf_tables.h).
const (
	elementIntervalEnd = 1
	elementCatchall    = 2
)

// set reads a set when it is first asked for.
func (f *Firewall) set(id foreignSet) (*foreignElements, error) {
	if s, known := f.sets[id]; known {
		return s, nil
	}
	var s *foreignElements
	filter := func(st *stream) {
		st.text(unix.NFTA_SET_ELEM_LIST_TABLE, id.table.name)
		st.text(unix.NFTA_SET_ELEM_LIST_SET, id.name)
	}
	if err := f.readIntervals(id.table); err != nil {
		return nil, err
	}
	err := f.conn.dump(id.table.family, unix.NFT_MSG_GETSETELEM, filter, func() { s = &foreignElements{intervals: f.intervals[id.table][id.name]} }, func(attrs []byte) {
		eachElement(attrs, func(e []byte) { s.add(e) })
	})
	if err != nil {
		return nil, fmt.Errorf("read set %s of table %s %s: %w", id.name, familyName(id.table.family), id.table.name, err)
	}
	slices.SortStableFunc(s.list, func(a, b foreignElement) int {
		if a.ends != b.ends && bytes.Equal(a.key, b.key) { // one interval ends where the next begins
			return map[bool]int{true: -1, false: 1}[a.ends]
		}
		return bytes.Compare(a.key, b.key)
	})
	f.sets[id] = s
	return s, nil
}

// readIntervals finds out which sets of a table have intervals: that an element is the beginning of one cannot be seen from it alone.
func (f *Firewall) readIntervals(t foreignTable) error {
	if f.intervals[t] != nil {
		return nil
	}
	err := f.conn.eachInTable(t.family, t.name, unix.NFT_MSG_GETSET, unix.NFTA_SET_NAME, func() { f.intervals[t] = map[string]bool{} },
		func(name string, attrs []byte) {
			f.intervals[t][name] = parseSet(attrs).flags&(unix.NFT_SET_INTERVAL|nftSetConcat) == unix.NFT_SET_INTERVAL
		})
	if err != nil {
		return fmt.Errorf("list the sets of table %s %s: %w", familyName(t.family), t.name, err)
	}
	return nil
}

// worst is what a verdict map does at most with a packet of which the key is not known: drop it, or else lead to a chain.
func (s *foreignElements) worst() ruling {
	worst := ruling{code: codeUnknown}
	all := s.list
	if s.catchall != nil {
		all = append(slices.Clip(all), *s.catchall)
	}
	for _, e := range all {
		switch e.verdict.code {
		case nfDrop:
			return e.verdict
		case codeJump, codeGoto:
			if worst.code == codeUnknown {
				worst = e.verdict
			}
		}
	}
	return worst
}

// add takes in an element.
func (s *foreignElements) add(attrs []byte) {
	e := foreignElement{verdict: ruling{code: codeContinue}}
	flags := uint32(0)
	value := func(b *[]byte) func(uint16, []byte) {
		return func(_ uint16, v []byte) { *b = slices.Clone(v) }
	}
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			eachAttr(v, value(&e.key))
		case nftaSetElemKeyEnd:
			eachAttr(v, value(&e.end))
		case unix.NFTA_SET_ELEM_FLAGS:
			flags = be32(v)
		case unix.NFTA_SET_ELEM_DATA:
			eachAttr(v, func(typ uint16, v []byte) {
				if typ == unix.NFTA_DATA_VERDICT {
					var o op
					o.verdict(v)
					e.verdict = ruling{uint32(o.num[0]), o.text}
					return
				}
				e.data = slices.Clone(v)
			})
		}
	})
	e.ends = flags&elementIntervalEnd != 0
	if flags&elementCatchall != 0 {
		s.catchall = &e
		return
	}
	s.keyLen = len(e.key)
	s.list = append(s.list, e)
}

// find returns the element that a key is or is in; nil if there is none.
func (s *foreignElements) find(key []byte) *foreignElement {
	var at *foreignElement
	for i := range s.list {
		e := &s.list[i]
		switch {
		case s.intervals:
			if bytes.Compare(e.key, key) <= 0 {
				at = e
			}
		case e.end != nil:
			if between(e.key, e.end, key) {
				return e
			}
		case bytes.Equal(e.key, key):
			return e
		}
	}
	if at == nil || at.ends {
		return s.catchall
	}
	return at
}

// between tells whether each 32-bit word of a key is between those of two others. Fields are made of whole words, and ranges of
// longer ones are prefixes in practice.
func between(from, to, key []byte) bool {
	if len(from) != len(key) || len(to) != len(key) {
		return false
	}
	for i := 0; i < len(key); i += 4 {
		n := min(i+4, len(key))
		if bytes.Compare(key[i:n], from[i:n]) < 0 || bytes.Compare(key[i:n], to[i:n]) > 0 {
			return false
		}
	}
	return true
}
