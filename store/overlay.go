package store

import (
	"cmp"
	"slices"
)

// change is a record that came, changed (value) or went (nil). Values are never modified.
type change struct {
	member string
	value  []byte
}

// overlay holds changes that are not in the file yet.
type overlay struct {
	groups map[groupKey][]change // by member
	bytes  int                   // of all values
}

func newOverlay() *overlay { return &overlay{groups: map[groupKey][]change{}} }

func (o *overlay) empty() bool { return o == nil || len(o.groups) == 0 }

func find(changes []change, member string) (int, bool) {
	return slices.BinarySearchFunc(changes, member, func(c change, m string) int { return cmp.Compare(c.member, m) })
}

// get returns the change of a record; ok tells whether there is one.
func (o *overlay) get(g groupKey, member string) (value []byte, ok bool) {
	if o == nil {
		return nil, false
	}
	changes := o.groups[g]
	if i, found := find(changes, member); found {
		return changes[i].value, true
	}
	return nil, false
}

func (o *overlay) group(g groupKey) []change {
	if o == nil {
		return nil
	}
	return o.groups[g]
}

// keys goes through all keys of a bucket that changed.
func (o *overlay) keys(b bucket, each func(key string, exists bool)) {
	if o == nil {
		return
	}
	for g, changes := range o.groups {
		if g.bucket != b {
			continue
		}
		for _, c := range changes {
			each(g.name+c.member, c.value != nil)
		}
	}
}

// put notes that a record has this value now, or none (nil).
func (o *overlay) put(g groupKey, member string, value []byte) {
	changes := o.groups[g]
	i, found := find(changes, member)
	if found {
		o.bytes -= len(changes[i].value)
		changes[i].value = value
	} else {
		o.groups[g] = slices.Insert(changes, i, change{member, value})
	}
	o.bytes += len(value)
}

// forget removes the change of a record.
func (o *overlay) forget(g groupKey, member string) {
	changes := o.groups[g]
	i, found := find(changes, member)
	if !found {
		return
	}
	o.bytes -= len(changes[i].value)
	if len(changes) == 1 {
		delete(o.groups, g)
		return
	}
	o.groups[g] = slices.Delete(changes, i, i+1)
}

// addOlder takes in changes that were made before those in o.
func (o *overlay) addOlder(older *overlay) {
	for g, changes := range older.groups {
		for _, c := range changes {
			if _, ok := o.get(g, c.member); !ok {
				o.put(g, c.member, c.value)
			}
		}
	}
}

// inOrder lists the groups in the order of the file.
func (o *overlay) inOrder() []groupKey {
	all := make([]groupKey, 0, len(o.groups))
	for g := range o.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b groupKey) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.name, b.name))
	})
	return all
}

// mergeChanges adds the changes of both to into, by member; of one that both have, the newer.
func mergeChanges(into, newer, older []change) []change {
	into = append(into, newer...)
	for _, c := range older {
		if i, found := find(into, c.member); !found {
			into = slices.Insert(into, i, c)
		}
	}
	return into
}
