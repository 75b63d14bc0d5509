package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Identity says what the records belong to. A cache whose identity differs is
// not used: it may be of another node (a copied SD card) or of another cluster. A fact that is unknown
// on one side, now or when the cache was written, is not compared.
type Identity struct {
	// NodeName is this node's name. Nodes of other names are not stored.
	NodeName string
	// Source is the name of the place that objects come from, e.g. "manifests /etc/sluice".
	Source string
	// Facts are others by name, e.g. "CA": the fingerprints of the authorities that the server's
	// certificate can be from. While an authority is rotated both are known at a time, so a
	// fact is the same as before if one of its values is. Values have no comma; names have to be the same
	// in each release.
	Facts map[string][]string
}

// Names of the facts that are fields of Identity.
const (
	factNodeName = "node name"
	factSource   = "source"
)

const identityPrefix = "identity/"

func (i Identity) facts() map[string]string {
	facts := map[string]string{factNodeName: i.NodeName, factSource: i.Source}
	for name, values := range i.Facts {
		facts[name] = join(values)
	}
	maps.DeleteFunc(facts, func(_, value string) bool { return value == "" })
	return facts
}

// differences names the facts that both know and that differ.
func differences(cached, now map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if was, ok := cached[name]; ok && !agree(name, was, now[name]) {
			all = append(all, fmt.Sprintf("its %s is %q, here it is %q", name, was, now[name]))
		}
	}
	return strings.Join(all, "; ")
}

// join makes one text of a fact's values.
func join(values []string) string {
	values = slices.Clone(values)
	slices.Sort(values)
	return strings.Join(values, ",")
}

// agree tells whether two values of a fact can be of the same thing.
func agree(name, a, b string) bool {
	if a == b || name == factNodeName || name == factSource {
		return a == b
	}
	known := strings.Split(b, ",")
	return slices.ContainsFunc(strings.Split(a, ","), func(v string) bool { return slices.Contains(known, v) })
}

// SetIdentity notes the values of a fact that became known later (the cluster's UID, for
// example), or are others now. If they contradict what was known, it returns that and false: the records are then
// of something else until all kinds were replaced once, and an agent that starts before that
// will not take them for complete.
func (s *Store) SetIdentity(name string, values ...string) (was string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value := join(values)
	was = s.identity[name]
	if value == "" || was == value {
		return was, true
	}
	s.identity[name] = value
	if was == "" || agree(name, was, value) {
		s.putMeta(identityPrefix+name, value, true)
		return was, true
	}
	s.putMeta(identityPrefix+name, value, false)
	for kind := range s.inStep {
		s.putMeta(inStepPrefix+string(kind), "", false)
	}
	clear(s.inStep)
	clear(s.persisted)
	return was, false
}

// putIdentity notes all facts that are not written yet. The caller holds mu.
func (s *Store) putIdentity(written map[string]string) {
	for name, value := range s.identity {
		if written[name] != value {
			s.putMeta(identityPrefix+name, value, true)
		}
	}
}

// putMeta notes a record of the bucket meta (empty: removes it). A lazy one is written
// with the next that is not. The caller holds mu.
func (s *Store) putMeta(key, value string, lazy bool) {
	g := groupKey{meta, key}
	var record []byte
	if value != "" {
		record = sealed(g, value)
	}
	s.front.put(g, "", record)
	s.changed(lazy)
}
