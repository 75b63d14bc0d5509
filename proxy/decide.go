package proxy

import (
	"net/netip"
	"slices"
	"strings"
)

// Source is who sends the first packet of a connection, as far as the rules tell senders apart.
type Source struct {
	// Addr is the source address of the packet.
	Addr netip.Addr
	// Interface is where it comes in; empty if this node sends it.
	Interface string
	// Local: Addr is one of this node's addresses.
	Local bool
}

// Verdict is what becomes of a packet.
type Verdict uint8

// The verdicts.
const (
	// Untouched: the packet is to no Service; it goes on as if there were no rules.
	Untouched Verdict = iota
	// Forwarded to one of the endpoints.
	Forwarded
	// Rejected with a TCP reset or an ICMP port unreachable.
	Rejected
	// Dropped without an answer.
	Dropped
)

func (v Verdict) String() string {
	return [...]string{"untouched", "forwarded", "rejected", "dropped"}[v]
}

// Reason says why a verdict is as it is.
type Reason uint8

// The reasons.
const (
	// NoService has the destination.
	NoService Reason = iota
	// NoSuchPort: the destination is a Service's ClusterIP, and no port of it.
	NoSuchPort
	// NoSuchClusterIP: the destination is in a ServiceCIDR, and no Service has it.
	NoSuchClusterIP
	// SourceRefused: the Service's loadBalancerSourceRanges do not have the source.
	SourceRefused
	// NoEndpoint is there for the client.
	NoEndpoint
	// HasEndpoints for the client.
	HasEndpoints
)

// Decision is what the rules do with the first packet of a connection, and why. Both writers decide so.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	// Route is that of the frontend which the packet is sent to; nil if no Service has it.
	Route *Route
	// Pod says that the source counts as a pod of the cluster (see Detection).
	Pod bool
	// Local: the connection stays with the endpoints of this node, and keeps its source (externalTrafficPolicy: Local).
	Local bool
	// Endpoints are those that a new connection goes to, each with the same chance, unless the client has an affinity.
	Endpoints []netip.AddrPort
	// Masquerade: endpoints see an address of this node in the place of the source. See also State.Masquerades.
	Masquerade bool
}

// Masquerades tells whether one of the endpoints sees an address of this node in the place of the source. A packet that
// comes back to the pod it is from (a hairpin) is masqueraded in any case, one from elsewhere to an
// endpoint that is this node itself (onNode) never: it leaves no more.
func (s *State) Masquerades(d *Decision, from Source, endpoint netip.AddrPort, onNode bool) bool {
	if onNode && !from.Local {
		return false
	}
	return d.Masquerade || from.Addr == endpoint.Addr() && s.localEndpoints[endpoint.Addr()] > 0
}

// Decide tells what the rules of this state do with the first packet of a connection.
func (s *State) Decide(from Source, to Frontend) Decision {
	d := Decision{Route: s.routes[to], Pod: s.settings.Detection.pod(from)}
	switch r := d.Route; {
	case r == nil && s.clusterIPs[to.Addr] > 0:
		d.Verdict, d.Reason = Rejected, NoSuchPort
	case r == nil && containsAddr(s.settings.ServiceCIDRs, to.Addr):
		d.Verdict, d.Reason = Dropped, NoSuchClusterIP
	case r == nil:
		d.Verdict, d.Reason = Untouched, NoService
	case r.SourceRanges != nil && !containsAddr(r.SourceRanges, from.Addr):
		d.Verdict, d.Reason = Dropped, SourceRefused
	default:
		d.forward(from, s.settings.Detection.Mode != DetectNone)
	}
	return d
}

// forward decides about a packet that its Service takes.
func (d *Decision) forward(from Source, detects bool) {
	r := d.Route
	pool := r.Pool
	if r.LocalPool != nil && !d.Pod && !from.Local {
		pool, d.Local = r.LocalPool, true
	}
	if d.Endpoints = pool.slots(); len(d.Endpoints) == 0 {
		d.Verdict, d.Reason = Rejected, NoEndpoint
		if r.WhenEmpty == Drop {
			d.Verdict = Dropped
		}
		return
	}
	d.Verdict, d.Reason = Forwarded, HasEndpoints
	if d.Local {
		return
	}
	switch r.Masquerade {
	case MasqueradeAlways:
		d.Masquerade = true
	case MasqueradeHost:
		d.Masquerade = from.Local
	case MasqueradeOffCluster:
		d.Masquerade = detects && !d.Pod
	}
}

// pod tells whether a source counts as a pod of the cluster.
func (d *Detection) pod(from Source) bool {
	switch d.Mode {
	case DetectBridgeInterface:
		return from.Interface == d.Interface && from.Interface != ""
	case DetectInterfaceNamePrefix:
		return strings.HasPrefix(from.Interface, d.Interface) && from.Interface != ""
	}
	return containsAddr(d.PodCIDRs, from.Addr)
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}
