package agent

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"sluice/agent/source"
	"sluice/proxy"
)

// objects is what the source has told, indexed so that a Service is found with its EndpointSlices.
type objects struct {
	services map[proxy.ServiceName]*serviceObjects
	// sliceOwner is the Service that a slice was last joined to: its label may change.
	sliceOwner map[proxy.ServiceName]proxy.ServiceName
	cidrs      map[string]*networkingv1.ServiceCIDR
	node       *corev1.Node
}

// serviceObjects is a Service and its slices; either may be there without the other.
type serviceObjects struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice // by name
}

func newObjects() *objects {
	return &objects{
		services:   map[proxy.ServiceName]*serviceObjects{},
		sliceOwner: map[proxy.ServiceName]proxy.ServiceName{},
		cidrs:      map[string]*networkingv1.ServiceCIDR{},
	}
}

// dirty is what has to be planned again after changes.
type dirty struct {
	services map[proxy.ServiceName]struct{}
	node     bool // the own Node or a ServiceCIDR
}

// apply takes in one change and notes in d what it concerns. nodeName is this node's.
func (o *objects) apply(c source.Change, nodeName string, d *dirty) {
	name := proxy.ServiceName{Namespace: c.Namespace, Name: c.Name}
	switch c.Kind {
	case source.Service:
		svc, _ := c.Object.(*corev1.Service)
		o.entry(name).service = svc
		o.dropIfEmpty(name)
		d.services[name] = struct{}{}
	case source.EndpointSlice:
		slice, _ := c.Object.(*discoveryv1.EndpointSlice)
		o.setSlice(name, slice, d)
	case source.ServiceCIDR:
		if cidr, ok := c.Object.(*networkingv1.ServiceCIDR); ok {
			o.cidrs[c.Name] = cidr
		} else {
			delete(o.cidrs, c.Name)
		}
		d.node = true
	case source.Node:
		if c.Name != nodeName {
			return
		}
		o.node, _ = c.Object.(*corev1.Node)
		d.node = true
	}
}

func (o *objects) entry(name proxy.ServiceName) *serviceObjects {
	e := o.services[name]
	if e == nil {
		e = &serviceObjects{}
		o.services[name] = e
	}
	return e
}

func (o *objects) dropIfEmpty(name proxy.ServiceName) {
	if e := o.services[name]; e != nil && e.service == nil && len(e.slices) == 0 {
		delete(o.services, name)
	}
}

func (o *objects) setSlice(name proxy.ServiceName, slice *discoveryv1.EndpointSlice, d *dirty) {
	if owner, ok := o.sliceOwner[name]; ok {
		e := o.services[owner]
		e.slices = slices.DeleteFunc(e.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name.Name })
		o.dropIfEmpty(owner)
		d.services[owner] = struct{}{}
		delete(o.sliceOwner, name)
	}
	if slice == nil {
		return
	}
	owner := proxy.ServiceName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	if owner.Name == "" {
		return // belongs to no Service
	}
	e := o.entry(owner)
	at, _ := slices.BinarySearchFunc(e.slices, slice, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	e.slices = slices.Insert(e.slices, at, slice)
	o.sliceOwner[name] = owner
	d.services[owner] = struct{}{}
}

// get returns a Service and its slices; the Service is nil if there is none.
func (o *objects) get(name proxy.ServiceName) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	e := o.services[name]
	if e == nil {
		return nil, nil
	}
	return e.service, e.slices
}

// names goes through all Services, in no order.
func (o *objects) names() iter.Seq[proxy.ServiceName] { return maps.Keys(o.services) }

// missing returns the deletions of the objects of a kind that do not exist.
func (o *objects) missing(kind source.Kind, exist map[source.Name]struct{}) []source.Change {
	var gone []source.Change
	check := func(namespace, name string) {
		if _, ok := exist[source.Name{Namespace: namespace, Name: name}]; !ok {
			gone = append(gone, source.Change{Kind: kind, Namespace: namespace, Name: name})
		}
	}
	switch kind {
	case source.Service:
		for name, e := range o.services {
			if e.service != nil {
				check(name.Namespace, name.Name)
			}
		}
	case source.EndpointSlice:
		for name := range o.sliceOwner {
			check(name.Namespace, name.Name)
		}
	case source.ServiceCIDR:
		for name := range o.cidrs {
			check("", name)
		}
	case source.Node:
		if o.node != nil {
			check("", o.node.Name)
		}
	}
	return gone
}

// counts counts the objects by kind.
func (o *objects) counts() map[source.Kind]int {
	n := map[source.Kind]int{source.EndpointSlice: len(o.sliceOwner), source.ServiceCIDR: len(o.cidrs)}
	for _, e := range o.services {
		if e.service != nil {
			n[source.Service]++
		}
	}
	if o.node != nil {
		n[source.Node] = 1
	}
	return n
}
