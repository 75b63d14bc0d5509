package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// Dirty is what has to be planned again after changes.
type Dirty struct {
	Services map[source.Name]struct{}
	Node     bool // the own Node or a ServiceCIDR
}

func (d *Dirty) service(namespace, name string) {
	if d.Services == nil {
		d.Services = map[source.Name]struct{}{}
	}
	d.Services[source.Name{Namespace: namespace, Name: name}] = struct{}{}
}

// Apply takes in a change and notes in d what it concerns: nothing, if the object is the
// same as before but for its resourceVersion. It takes over the object and clears what is not stored.
// Nodes of other names, and EndpointSlices that belong to no Service, are left out.
func (s *Store) Apply(c source.Change, d *Dirty) {
	if !validName(c.Name) || c.Namespace != "" && !validName(c.Namespace) {
		s.log.Warn("an object is left out: Kubernetes allows no such name", "kind", c.Kind, "namespace", c.Namespace, "name", c.Name)
		return
	}
	switch c.Kind {
	case source.Service:
		if s.set(serviceGroup(c.Namespace, c.Name), "", c.Object) {
			d.service(c.Namespace, c.Name)
		}
	case source.EndpointSlice:
		s.applySlice(c, d)
	case source.ServiceCIDR, source.Node:
		if c.Kind == source.Node && c.Name != s.opts.Identity.NodeName {
			return
		}
		if s.set(clusterGroup(c.Kind, c.Name), "", c.Object) {
			d.Node = true
		}
	}
}

func clusterGroup(kind source.Kind, name string) groupKey {
	return groupKey{cluster, string(kind) + "/" + name}
}

// applySlice files a slice under the Service that its label names, which may change.
func (s *Store) applySlice(c source.Change, d *Dirty) {
	var owner string
	if slice, ok := c.Object.(*discoveryv1.EndpointSlice); ok {
		owner = slice.Labels[discoveryv1.LabelServiceName]
	}
	if owner != "" && !validName(owner) {
		s.log.Warn("an EndpointSlice is left out: its label names no Service", "namespace", c.Namespace, "name", c.Name,
			"label", discoveryv1.LabelServiceName, "value", owner)
		owner = ""
	}
	index := groupKey{owners, c.Namespace + "/" + c.Name}
	was := s.owner(index)
	if was != "" && was != owner && s.set(serviceGroup(c.Namespace, was), c.Name, nil) {
		d.service(c.Namespace, was)
	}
	if owner != "" && s.set(serviceGroup(c.Namespace, owner), c.Name, c.Object) {
		d.service(c.Namespace, owner)
	}
	if was != owner {
		var value []byte
		if owner != "" {
			value = sealed(index, owner)
		}
		s.put(index, "", value)
	}
}

// owner returns the Service that a slice is filed under, "" if none.
func (s *Store) owner(index groupKey) string {
	var name string
	s.lookUp(index, "", func(value []byte) {
		if payload, err := unseal(index, "", value); err == nil {
			name = string(payload)
		}
	})
	return name
}

// set stores an object (nil: removes it) and tells whether that changed anything.
func (s *Store) set(g groupKey, member string, obj metav1.Object) bool {
	value, err := s.encode(g, member, obj)
	if err != nil {
		s.log.Warn("an object is left out", "key", g.name+member, "error", err)
		return false
	}
	return s.put(g, member, value)
}

// encode returns an object's record, which is valid until the next call; nil for nil.
func (s *Store) encode(g groupKey, member string, obj metav1.Object) ([]byte, error) {
	if obj == nil {
		return nil, nil
	}
	message, ok := obj.(interface {
		Size() int
		MarshalToSizedBuffer([]byte) (int, error)
	})
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf encoding", obj)
	}
	obj.SetResourceVersion("")
	obj.SetManagedFields(nil)
	size := crcSize + message.Size()
	s.value = slices.Grow(s.value[:0], size)[:size]
	if _, err := message.MarshalToSizedBuffer(s.value[crcSize:]); err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	seal(g, member, s.value)
	return s.value, nil
}

// put stores a record (nil: removes it) and tells whether that changed anything. It copies value.
func (s *Store) put(g groupKey, member string, value []byte) bool {
	same := value == nil
	existed := s.lookUp(g, member, func(old []byte) { same = bytes.Equal(old, value) })
	if same {
		return false
	}
	// A deletion is kept only if something is, or may soon be, in the file: changes that
	// cannot be committed would grow without end.
	s.mu.Lock()
	attempts := s.attempts
	_, keep := s.back.get(g, member)
	s.mu.Unlock()
	keep = keep || value != nil || s.inFile(g, member, func([]byte) {})
	kind := kindOf(g, member)
	s.mu.Lock()
	defer s.mu.Unlock()
	if keep || s.attempts != attempts {
		s.front.put(g, member, bytes.Clone(value))
	} else {
		s.front.forget(g, member)
	}
	if kind != "" && value == nil {
		s.counts[kind]--
	} else if kind != "" && !existed {
		s.counts[kind]++
	}
	s.changed(false)
	return true
}

// lookUp hands a record's value to found, if there is one. The value is valid during the call.
func (s *Store) lookUp(g groupKey, member string, found func(value []byte)) bool {
	s.mu.Lock()
	value, changed := s.front.get(g, member)
	if !changed {
		value, changed = s.back.get(g, member)
	}
	s.mu.Unlock()
	switch {
	case !changed:
		return s.inFile(g, member, found)
	case value != nil:
		found(value)
	}
	return value != nil
}

// inFile is lookUp without regard to changes that are not in the file yet.
func (s *Store) inFile(g groupKey, member string, found func(value []byte)) bool {
	s.mu.Lock()
	base, generation := s.base, s.generation
	s.mu.Unlock()
	s.scratch = s.scratch[:0]
	err := s.view(base, generation, func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketNames[g.bucket])); b != nil {
			s.scratch = append(s.scratch, b.Get([]byte(g.name+member))...)
		}
		return nil
	})
	if err != nil || len(s.scratch) == 0 {
		return false
	}
	found(s.scratch)
	return true
}

// view reads the file. If that fails, all is lost.
func (s *Store) view(base *file, generation int, fn func(*bbolt.Tx) error) error {
	if base == nil {
		return nil
	}
	if err := base.view(fn); err != nil {
		s.lose(base, err)
		return ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation {
		return ErrLost
	}
	return nil
}

// restore takes in a record of a file that is not used any more. Damaged pages may hold a record twice.
func (s *Store) restore(g groupKey, member string, value []byte) {
	kind := kindOf(g, member)
	if _, twice := s.front.get(g, member); twice || kind == "" {
		return // meta is taken in by load, owners follow from objects
	}
	if kind == source.EndpointSlice {
		namespace, service, _ := strings.Cut(strings.TrimSuffix(g.name, "/"), "/")
		index := groupKey{owners, namespace + "/" + member}
		if _, twice := s.front.get(index, ""); twice {
			return
		}
		s.front.put(index, "", sealed(index, service))
	}
	s.counts[kind]++
	s.front.put(g, member, bytes.Clone(value))
	s.changed(false)
}
