package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// traits are what the choice between endpoints looks at.
type traits uint8

const (
	ready traits = 1 << iota
	serving
	terminating
	local        // on this node
	hasNodeHints // names nodes that are to use it
	forNode      // names this node
	hasZoneHints // names zones that are to use it
	forZone      // names this node's zone
)

// has tells whether t has all of want.
func (t traits) has(want traits) bool { return t&want == want }

// endpoint is one address and port behind a Service port.
type endpoint struct {
	addr netip.AddrPort
	traits
}

// host is one endpoint of an EndpointSlice, whose ports are the slice's.
type host struct {
	addr netip.Addr
	traits
}

// endpointSlice is what planning needs of one EndpointSlice.
type endpointSlice struct {
	ports []slicePort
	hosts []host
}

type slicePort struct {
	name     string
	protocol Protocol
	port     uint16
}

// readSlices takes from the slices those that belong to svc and to n's family.
func (p *planner) readSlices(all []*discoveryv1.EndpointSlice) []endpointSlice {
	addressType := discoveryv1.AddressTypeIPv4
	if p.node.Family == IPv6 {
		addressType = discoveryv1.AddressTypeIPv6
	}
	read := make([]endpointSlice, 0, len(all))
	for _, slice := range all {
		if slice.AddressType != addressType || slice.Namespace != p.svc.Namespace ||
			slice.Labels[discoveryv1.LabelServiceName] != p.svc.Name {
			continue
		}
		if _, headless := slice.Labels[corev1.IsHeadlessService]; headless {
			continue
		}
		read = append(read, endpointSlice{ports: p.slicePorts(slice), hosts: p.sliceHosts(slice)})
	}
	return read
}

func (p *planner) slicePorts(slice *discoveryv1.EndpointSlice) []slicePort {
	ports := make([]slicePort, 0, len(slice.Ports))
	for i := range slice.Ports {
		port := &slice.Ports[i]
		// An API server fills in both; objects from elsewhere may lack them.
		name, transport := ptr.Deref(port.Name, ""), ptr.Deref(port.Protocol, "")
		protocol, known := protocolOf(transport)
		switch {
		case port.Port == nil || *port.Port == 0:
			p.ignore("EndpointSlice %s: port %q has no number", slice.Name, name)
		case !validPort(*port.Port):
			p.ignore("EndpointSlice %s: port %q is %d, outside 1-65535", slice.Name, name, *port.Port)
		case !known:
			p.ignore("EndpointSlice %s: port %q has the protocol %q; TCP, UDP and SCTP are served", slice.Name, name, transport)
		default:
			ports = append(ports, slicePort{name, protocol, uint16(*port.Port)})
		}
	}
	return ports
}

func (p *planner) sliceHosts(slice *discoveryv1.EndpointSlice) []host {
	hosts := make([]host, 0, len(slice.Endpoints))
	bad, firstBad := 0, ""
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		first := ""
		if len(ep.Addresses) > 0 {
			first = ep.Addresses[0] // all addresses of an endpoint are one host: the API says to use the first
		}
		addr, ok := parseAddr(first)
		// Link-local addresses, such as a cloud's 169.254.169.254, are another host on each node. API servers refuse them.
		if !ok || FamilyOf(addr) != p.node.Family || !routable(addr) || addr.IsLinkLocalUnicast() {
			if bad == 0 {
				firstBad = first
			}
			bad++
			continue
		}
		hosts = append(hosts, host{addr, p.traitsOf(ep)})
	}
	if bad > 0 {
		p.ignore("EndpointSlice %s: %d of %d endpoints have no usable %v address, the first of them %q",
			slice.Name, bad, len(slice.Endpoints), p.node.Family, firstBad)
	}
	return hosts
}

// traitsOf reads the conditions and hints. What is not said counts as the API
// documents it: ready, serving and not terminating.
func (p *planner) traitsOf(ep *discoveryv1.Endpoint) traits {
	var t traits
	set := func(trait traits, yes bool) {
		if yes {
			t |= trait
		}
	}
	c := &ep.Conditions
	set(ready, c.Ready == nil || *c.Ready)
	set(serving, c.Serving == nil || *c.Serving)
	set(terminating, c.Terminating != nil && *c.Terminating)
	set(local, ep.NodeName != nil && *ep.NodeName == p.node.Name && p.node.Name != "")
	if ep.Hints == nil {
		return t
	}
	set(hasNodeHints, len(ep.Hints.ForNodes) > 0)
	for _, n := range ep.Hints.ForNodes {
		set(forNode, n.Name == p.node.Name && n.Name != "")
	}
	set(hasZoneHints, len(ep.Hints.ForZones) > 0)
	for _, z := range ep.Hints.ForZones {
		set(forZone, z.Name == p.node.Zone && z.Name != "")
	}
	return t
}

// endpointsOf lists the endpoints of one Service port, sorted by address. An
// address and port that several slices have is one endpoint. A copy that is not
// terminating wins: a pod network may give the address of a pod that is still
// terminating to a new pod.
func endpointsOf(from []endpointSlice, name string, protocol Protocol) []endpoint {
	n := 0
	for _, slice := range from {
		n += len(slice.hosts)
	}
	list := make([]endpoint, 0, n)
	for _, slice := range from {
		for _, port := range slice.ports {
			if port.name != name || port.protocol != protocol {
				continue
			}
			for _, h := range slice.hosts {
				list = append(list, endpoint{netip.AddrPortFrom(h.addr, port.port), h.traits})
			}
		}
	}
	// Between copies that differ in other ways the order is ours, so that the result does not
	// depend on the order of the slices: the most usable copy comes first.
	slices.SortFunc(list, func(a, b endpoint) int {
		return cmp.Or(a.addr.Compare(b.addr),
			cmp.Compare(a.traits&terminating, b.traits&terminating),
			cmp.Compare(b.traits&ready, a.traits&ready),
			cmp.Compare(b.traits&serving, a.traits&serving),
			cmp.Compare(b.traits, a.traits))
	})
	return slices.CompactFunc(list, func(a, b endpoint) bool { return a.addr == b.addr })
}

// anyHost tells whether there are endpoints, of whatever port.
func anyHost(from []endpointSlice) bool {
	return slices.ContainsFunc(from, func(s endpointSlice) bool { return len(s.ports) > 0 && len(s.hosts) > 0 })
}

// protocolOf translates a protocol's name. No name is TCP, as the API documents it.
func protocolOf(name corev1.Protocol) (p Protocol, known bool) {
	switch name {
	case corev1.ProtocolTCP, "":
		return TCP, true
	case corev1.ProtocolUDP:
		return UDP, true
	case corev1.ProtocolSCTP:
		return SCTP, true
	}
	return 0, false
}
