package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// SlotsFunc tells which slots a frontend has at present, so that planning can
// leave endpoints where they are. Both are nil for a frontend that is unknown.
type SlotsFunc func(Frontend) (pool, localPool []netip.AddrPort)

// PlanService works out the desired state of one Service in n's family. It
// returns nil if the Service is not served in this family: it is another
// proxy's, headless, of type ExternalName, or has no clusterIP there. Slices that
// are not the Service's are skipped, so that all slices of a namespace may be
// given. slots may be nil. What cannot be served is left out and named in Ignored.
func PlanService(n *Node, svc *corev1.Service, slices []*discoveryv1.EndpointSlice, slots SlotsFunc) *ServicePlan {
	if !served(svc) {
		return nil
	}
	ip := clusterIP(svc, n.Family)
	if ip == "" {
		return nil
	}
	p := &planner{
		node:     n,
		svc:      svc,
		slots:    slots,
		affinity: affinityTimeout(svc),
		plan:     &ServicePlan{Name: ServiceName{svc.Namespace, svc.Name}},
	}
	if !svc.CreationTimestamp.IsZero() {
		p.plan.Created = svc.CreationTimestamp.Unix()
	}
	p.addrs = p.addresses(ip)
	p.ranges = p.sourceRanges()
	p.planClusterIP()
	p.planPorts(p.readSlices(slices))
	return p.plan
}

// planner is one run of PlanService.
type planner struct {
	node     *Node
	svc      *corev1.Service
	slots    SlotsFunc
	affinity uint32
	addrs    []address
	ranges   []netip.Prefix
	plan     *ServicePlan
}

// ignore notes a part of the Service that is not served.
func (p *planner) ignore(format string, args ...any) {
	p.plan.Ignored = append(p.plan.Ignored, fmt.Sprintf(format, args...))
}

// planClusterIP makes unused ports of the ClusterIP reject, unless this node has
// the address itself (a DNS cache on the node may listen at it): its other ports are the node's.
func (p *planner) planClusterIP() {
	if len(p.addrs) == 0 || p.addrs[0].kind != ClusterIP {
		return
	}
	ip := p.addrs[0].addr
	if slices.Contains(p.node.Addrs, ip) {
		p.ignore("clusterIP %v is an address of this node: ports that are not the Service's are left to the node", ip)
		return
	}
	p.plan.ClusterIPs = []netip.Addr{ip}
}

// MaxPairs bounds what one Service can make of the memory of agent and kernel, in each family: pairs of an address and port of it
// and an endpoint or a source range, at some 100 bytes in the kernel and 40 in the agent each. A Service with 10,000 endpoints at 25
// addresses and ports stays below.
const MaxPairs = 250_000

func (p *planner) planPorts(from []endpointSlice) {
	pairs, over := 0, 0
	defer func() {
		if over > 0 {
			p.ignore("%d of its ports are not served: what is at their addresses would make more than %d pairs with endpoints and source ranges; make several Services of it", over, MaxPairs)
		}
	}()
	ports := p.svc.Spec.Ports
	n := len(ports) * len(p.addrs)
	for i := range ports {
		if ports[i].NodePort != 0 {
			n += len(p.node.NodePortAddrs)
		}
	}
	p.plan.Frontends = make([]FrontendRoute, 0, n)
	var localAddrs, localReady []netip.Addr
	for i := range ports {
		port := &ports[i]
		protocol, known := protocolOf(port.Protocol)
		if !known {
			p.ignore("port %q: protocol %q; TCP, UDP and SCTP are served", port.Name, port.Protocol)
			continue
		}
		if !validPort(port.Port) {
			p.ignore("port %q: %d is outside 1-65535", port.Name, port.Port)
			continue
		}
		list := endpointsOf(from, port.Name, protocol)
		if len(list) == 0 && anyHost(from) {
			p.ignore("port %q: none of its EndpointSlices has a port of that name for %v", port.Name, protocol)
		}
		r := p.newRouter(port, protocol, list)
		here := len(r.frontends) * (1 + len(list) + len(p.ranges))
		if pairs+here > MaxPairs {
			over++
			continue
		}
		pairs += here
		for _, f := range r.frontends {
			p.plan.Frontends = append(p.plan.Frontends, FrontendRoute{f.Frontend, r.route(f)})
		}
		if r.localhost {
			f := kindFrontend{Frontend{p.node.Family.Loopback(), uint16(port.NodePort), protocol}, NodePort}
			p.plan.Localhost = append(p.plan.Localhost, FrontendRoute{f.Frontend, r.route(f)})
		}
		for _, ep := range r.endpoints {
			if ep.has(local) && (r.cluster.includes(ep.traits) || r.local.includes(ep.traits)) {
				localAddrs = append(localAddrs, ep.addr.Addr())
			}
			if ep.has(local | ready) {
				localReady = append(localReady, ep.addr.Addr())
			}
		}
	}
	p.plan.LocalEndpoints = slices.Clone(distinct(localAddrs)) // kept: no spare room
	if p.svc.Spec.Type == corev1.ServiceTypeLoadBalancer && externalLocal(p.svc) {
		p.planHealthCheck(len(distinct(localReady)))
	}
}

func (p *planner) planHealthCheck(localReady int) {
	switch port := p.svc.Spec.HealthCheckNodePort; {
	case port < 0 || port > 65535:
		p.ignore("healthCheckNodePort %d is outside 1-65535", port)
	case port != 0:
		p.plan.HealthCheck = &HealthCheck{Port: uint16(port), LocalEndpoints: localReady}
	}
}

// distinct sorts list and removes what it has twice.
func distinct(list []netip.Addr) []netip.Addr {
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
