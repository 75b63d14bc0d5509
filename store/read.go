package store

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"sluice/agent/source"
)

// keysAtOnce is how many keys are read in one transaction: a long one keeps
// bbolt from using free pages again and from growing its mapping.
const keysAtOnce = 256

// Service returns a Service and its EndpointSlices by name, made anew for the caller and without
// resourceVersion. The Service is nil if there is none. With an error nothing is known: what was
// planned before has to stay.
func (s *Store) Service(name source.Name) (*corev1.Service, []*discoveryv1.EndpointSlice, error) {
	g := serviceGroup(name.Namespace, name.Name)
	records, err := s.group(g)
	if err != nil {
		return nil, nil, fmt.Errorf("read Service %s/%s: %w", name.Namespace, name.Name, err)
	}
	var svc *corev1.Service
	var all []*discoveryv1.EndpointSlice
	for _, r := range records {
		if r.member == "" {
			svc = &corev1.Service{}
			err = s.decode(g, r, svc)
		} else {
			slice := &discoveryv1.EndpointSlice{}
			err = s.decode(g, r, slice)
			all = append(all, slice)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return svc, all, nil
}

// Node returns this node's object, nil if there is none.
func (s *Store) Node() (*corev1.Node, error) {
	node := &corev1.Node{}
	g := clusterGroup(source.Node, s.opts.Identity.NodeName)
	records, err := s.group(g)
	if err != nil {
		return nil, fmt.Errorf("read the Node: %w", err)
	}
	if len(records) == 0 {
		return nil, nil
	}
	return node, s.decode(g, records[0], node)
}

// ServiceCIDRs returns all of them.
func (s *Store) ServiceCIDRs() ([]*networkingv1.ServiceCIDR, error) {
	var all []*networkingv1.ServiceCIDR
	for name := range s.names(source.ServiceCIDR) {
		g := clusterGroup(source.ServiceCIDR, name.Name)
		records, err := s.group(g)
		if err != nil {
			return nil, fmt.Errorf("read the ServiceCIDRs: %w", err)
		}
		for _, r := range records {
			cidr := &networkingv1.ServiceCIDR{}
			if err := s.decode(g, r, cidr); err != nil {
				return nil, err
			}
			all = append(all, cidr)
		}
	}
	return all, nil
}

// Names goes through all Services, in no order. The store may be used meanwhile; of Services that
// are changed then, it is open whether they are among the names.
func (s *Store) Names() iter.Seq[source.Name] { return s.names(source.Service) }

// Missing returns the deletions of the objects of a kind that do not exist.
func (s *Store) Missing(kind source.Kind, exist map[source.Name]struct{}) []source.Change {
	var gone []source.Change
	for name := range s.names(kind) {
		if _, ok := exist[name]; !ok {
			gone = append(gone, source.Change{Kind: kind, Namespace: name.Namespace, Name: name.Name})
		}
	}
	return gone
}

// group returns the records of a group by member. They are valid until the next read.
func (s *Store) group(g groupKey) ([]change, error) {
	s.mu.Lock()
	changes := mergeChanges(nil, s.front.groups[g], s.back.group(g))
	base, generation, lost := s.base, s.generation, s.lost
	s.mu.Unlock()
	if lost {
		return nil, ErrLost
	}
	var inBase []change
	s.scratch = s.scratch[:0]
	err := s.view(base, generation, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketNames[g.bucket]))
		if b == nil {
			return nil
		}
		prefix := []byte(g.name)
		c := b.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if g.bucket != objects && len(k) != len(prefix) {
				break
			}
			at := len(s.scratch)
			s.scratch = append(s.scratch, v...)
			inBase = append(inBase, change{string(k[len(prefix):]), s.scratch[at:]})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return inBase, nil
	}
	all := mergeChanges(nil, changes, inBase)
	there := all[:0]
	for _, c := range all {
		if c.value != nil {
			there = append(there, c)
		}
	}
	return there, nil
}

// decode decodes a record. Whatever is in it, the answer is an error at worst.
func (s *Store) decode(g groupKey, r change, into interface{ Unmarshal([]byte) error }) error {
	err := guard(func() error {
		payload, err := unseal(g, r.member, r.value)
		if err != nil {
			return err
		}
		return into.Unmarshal(payload)
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("decode record %s of the cache: %w", g.name+r.member, err)
	s.mu.Lock()
	s.stats.BadRecords++
	s.mu.Unlock()
	if !s.bad {
		s.bad = true
		s.log.Warn("a record of the cache cannot be read; what is in the kernel stays until the source sends the object again", "error", err)
	}
	return err
}

// names goes through the names of a kind's objects.
func (s *Store) names(kind source.Kind) iter.Seq[source.Name] {
	b, prefix, suffix := cluster, string(kind)+"/", ""
	switch kind {
	case source.Service:
		b, prefix, suffix = objects, "", "/"
	case source.EndpointSlice:
		b, prefix = owners, ""
	}
	return func(yield func(source.Name) bool) {
		for key := range s.keys(b, prefix, suffix) {
			namespace, name, ok := strings.Cut(key[len(prefix):len(key)-len(suffix)], "/")
			if !ok {
				namespace, name = "", namespace
			}
			if !yield(source.Name{Namespace: namespace, Name: name}) {
				return
			}
		}
	}
}

// keys goes through the keys of a bucket that begin and end so.
func (s *Store) keys(b bucket, prefix, suffix string) iter.Seq[string] {
	return func(yield func(string) bool) {
		s.mu.Lock()
		changed := map[string]bool{} // whether the key exists
		for _, o := range []*overlay{s.back, s.front} {
			o.keys(b, func(key string, exists bool) { changed[key] = exists })
		}
		base, generation := s.base, s.generation
		s.mu.Unlock()
		last := prefix
		for more := base != nil; more; {
			var found []string
			err := s.view(base, generation, func(tx *bbolt.Tx) error {
				found = keysFrom(tx, b, prefix, suffix, last)
				return nil
			})
			if err != nil {
				return
			}
			for _, key := range found {
				if _, ok := changed[key]; !ok && !yield(key) {
					return
				}
				last = key
			}
			more = len(found) == keysAtOnce
		}
		for key, exists := range changed {
			if exists && strings.HasPrefix(key, prefix) && strings.HasSuffix(key, suffix) && !yield(key) {
				return
			}
		}
	}
}

// keysFrom returns the first keys after last.
func keysFrom(tx *bbolt.Tx, b bucket, prefix, suffix, last string) []string {
	var found []string
	bucket := tx.Bucket([]byte(bucketNames[b]))
	if bucket == nil {
		return nil
	}
	c := bucket.Cursor()
	for k, _ := c.Seek([]byte(last)); k != nil && bytes.HasPrefix(k, []byte(prefix)) && len(found) < keysAtOnce; k, _ = c.Next() {
		if string(k) > last && bytes.HasSuffix(k, []byte(suffix)) {
			found = append(found, string(k))
		}
	}
	return found
}
