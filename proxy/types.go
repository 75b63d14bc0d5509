package proxy

import (
	"net/netip"
	"strconv"
)

// Family is an IP family. The two are planned, written and repaired apart from
// each other, so that a fault of one never stops the other.
type Family uint8

// The families. The numbers are the IP versions.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both, in the order in which they are handled.
var Families = [...]Family{IPv4, IPv6}

func (f Family) String() string { return "IPv" + strconv.Itoa(int(f)) }

// FamilyOf returns the family of an address. An IPv4-mapped IPv6 address counts as IPv6.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Protocol is a transport protocol by its IANA number, as in the IP header.
type Protocol uint8

// The protocols that a Service port can name (core/v1 Protocol).
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return strconv.Itoa(int(p))
}

// ServiceName names a Service.
type ServiceName struct{ Namespace, Name string }

func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// ServicePortName names one port of a Service. Port is the port's name, which
// is empty for a Service with a single unnamed port.
type ServicePortName struct {
	ServiceName
	Port     string
	Protocol Protocol
}

func (n ServicePortName) String() string {
	s := n.ServiceName.String()
	if n.Port != "" {
		s += ":" + n.Port
	}
	return s
}

// Frontend is an address that clients of a Service send to. Port is in host byte order.
type Frontend struct {
	Addr     netip.Addr
	Port     uint16
	Protocol Protocol
}

func (f Frontend) String() string {
	return netip.AddrPortFrom(f.Addr, f.Port).String() + "/" + f.Protocol.String()
}

// Kind says where in a Service a frontend comes from.
type Kind uint8

// The kinds of frontend.
const (
	ClusterIP Kind = iota
	ExternalIP
	LoadBalancerIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"ClusterIP", "ExternalIP", "LoadBalancerIP", "NodePort"}[k]
}

// Masquerade says which flows to a frontend get this node's address as their
// source. Hairpin flows (a pod that reaches itself) are masqueraded in any case.
type Masquerade uint8

// The rules of masquerading.
const (
	// MasqueradeNever keeps every source address.
	MasqueradeNever Masquerade = iota
	// MasqueradeOffCluster replaces sources that are not pods, as local detection tells them.
	// Without local detection no source is replaced.
	MasqueradeOffCluster
	// MasqueradeHost replaces only sources that are addresses of this node (externalTrafficPolicy: Local).
	MasqueradeHost
	// MasqueradeAlways replaces every source.
	MasqueradeAlways
)

func (m Masquerade) String() string {
	return [...]string{"never", "off-cluster", "host", "always"}[m]
}

// Answer is what a client hears for whom a route has no endpoint.
type Answer uint8

// The answers.
const (
	// Reject answers with a TCP reset or an ICMP port unreachable.
	Reject Answer = iota
	// Drop is silent: another node may have an endpoint, and a load balancer is to try there.
	Drop
)

func (a Answer) String() string { return [...]string{"reject", "drop"}[a] }

// Pool is the endpoints that new connections are spread over. A slot keeps its
// number while its endpoint lives; a removed endpoint's slot is taken by the
// last one, so that one endpoint's coming or going changes at most two slots.
// A Pool is not changed once it is part of a ServicePlan.
type Pool struct {
	Slots []netip.AddrPort
	// AffinityID stands for this pool in the keys of affinity entries, whichever
	// frontend a client used. It is 0 without session affinity.
	AffinityID uint32
}

// Route says what happens to the packets that arrive at one frontend.
type Route struct {
	Port ServicePortName
	Kind Kind
	// Pool serves every client; in a split route only pods and the node itself.
	Pool *Pool
	// LocalPool is set in a split route (externalTrafficPolicy: Local at an address outside
	// the cluster): clients that are neither pods nor this node are served by these
	// endpoints of this node, with their source address kept.
	LocalPool *Pool
	// Masquerade applies to connections through Pool, never to those through LocalPool.
	Masquerade Masquerade
	// Affinity is the time in seconds for which a client keeps its endpoint after
	// its last new connection; 0 is no affinity.
	Affinity uint32
	// SourceRanges are the only sources that get through, none inside another; nil lets all pass.
	SourceRanges []netip.Prefix
	// WhenEmpty is the answer to a client whose pool has no slots.
	WhenEmpty Answer
	// Others are endpoints outside the pools that still serve (in another zone, or
	// terminating): they get no new connection, but flows that they have go on.
	Others []netip.AddrPort
}

// HealthCheck is a Service's healthCheckNodePort and what its server says.
type HealthCheck struct {
	Port           uint16
	LocalEndpoints int // ready endpoints on this node
}

// FrontendRoute is one frontend of a ServicePlan.
type FrontendRoute struct {
	Frontend
	Route *Route
}

// ServicePlan is the desired state for one Service in one family.
// It is not changed once it was handed to a State.
type ServicePlan struct {
	Name ServiceName
	// Created orders Services that claim the same frontend: the older one has it.
	// In seconds since 1970.
	Created int64
	// Frontends, in the order of the Service's ports and then of Kind.
	Frontends []FrontendRoute
	// Localhost are the TCP NodePorts at the loopback address, if the Node asks for them. They are
	// not for writers: a listener there hands connections to LocalPool if it is set, else to Pool.
	Localhost []FrontendRoute
	// ClusterIPs of the Service: ports of theirs that no Service has are rejected.
	ClusterIPs []netip.Addr
	// LocalEndpoints are the addresses of pool members on this node: their flows to themselves are hairpins.
	LocalEndpoints []netip.Addr
	// HealthCheck is nil unless the Service has a healthCheckNodePort.
	HealthCheck *HealthCheck
	// Ignored says which parts of the Service are not served, and why, for the log.
	Ignored []string
}
