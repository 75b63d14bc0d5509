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
	// Facts are others by name, e.g. "CA": the server CA's fingerprint. Names have
	// to be the same in each release.
	Facts map[string]string
}

// Names of the facts that are fields of Identity.
const (
	factNodeName = "node name"
	factSource   = "source"
)

const identityPrefix = "identity/"

func (i Identity) facts() map[string]string {
	facts := map[string]string{factNodeName: i.NodeName, factSource: i.Source}
	maps.Copy(facts, i.Facts)
	maps.DeleteFunc(facts, func(_, value string) bool { return value == "" })
	return facts
}

// differences names the facts that both know and that differ.
func differences(cached, now map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if was, ok := cached[name]; ok && was != now[name] {
			all = append(all, fmt.Sprintf("its %s is %q, here it is %q", name, was, now[name]))
		}
	}
	return strings.Join(all, "; ")
}

// SetIdentity notes a fact that became known later (the cluster's UID, for
// example). If it contradicts what was known, it returns the older value and false: the records are then
// of something else until all kinds were replaced once, and an agent that starts before that
// will not take them for complete.
func (s *Store) SetIdentity(name, value string) (was string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.identity[name]
	if value == "" || was == value {
		return was, true
	}
	s.identity[name] = value
	if was == "" {
		s.putMeta(identityPrefix+name, value, true)
		return "", true
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
