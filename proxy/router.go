package proxy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// router makes the routes of one Service port. Frontends share its pools.
type router struct {
	*planner
	port      ServicePortName
	frontends []kindFrontend
	// localhost is true if the port has a NodePort that is asked for at the loopback address.
	localhost bool
	endpoints []endpoint
	// cluster and local choose the members of the two pools. They are zero where
	// the port's traffic policies have no use for the pool.
	cluster, local selection
	// usable is true if any node has an endpoint that could serve.
	usable                 bool
	clusterPool, localPool *Pool
	routes                 [NodePort + 1]*Route // by Kind, where the address does not matter
	others                 [4][]netip.AddrPort  // by which pools a route has
}

func (p *planner) newRouter(port *corev1.ServicePort, protocol Protocol, list []endpoint) *router {
	r := &router{
		planner:   p,
		port:      ServicePortName{p.plan.Name, port.Name, protocol},
		frontends: p.frontendsOf(port, protocol),
		localhost: p.node.LocalhostNodePorts && protocol == TCP && validPort(port.NodePort),
		endpoints: list,
	}
	r.usable = slices.ContainsFunc(list, func(ep endpoint) bool {
		return ep.has(ready) || ep.has(serving|terminating)
	})
	internal := slices.ContainsFunc(r.frontends, func(f kindFrontend) bool { return f.kind == ClusterIP })
	external := r.localhost || slices.ContainsFunc(r.frontends, func(f kindFrontend) bool { return f.kind != ClusterIP })
	if external || internal && !internalLocal(p.svc) {
		r.cluster = selectCluster(list)
		r.clusterPool = r.newPool(r.cluster, false)
	}
	if internal && internalLocal(p.svc) || external && externalLocal(p.svc) {
		r.local = selectLocal(list)
		r.localPool = r.newPool(r.local, true)
	}
	return r
}

func (r *router) newPool(members selection, localPool bool) *Pool {
	pool := &Pool{Slots: nextSlots(r.present(localPool), r.list(members.includes))}
	if r.affinity != 0 {
		pool.AffinityID = affinityID(r.port, localPool)
	}
	return pool
}

// present returns the slots that one of the two pools has now, as the first
// frontend tells that has any.
func (r *router) present(localPool bool) []netip.AddrPort {
	if r.slots == nil {
		return nil
	}
	for _, f := range r.frontends {
		pool, split := r.slots(f.Frontend)
		switch {
		case f.kind == ClusterIP && internalLocal(r.svc) != localPool:
			continue
		case f.kind != ClusterIP && localPool:
			pool = split
		}
		if len(pool) > 0 {
			return pool
		}
	}
	return nil
}

// list returns the endpoints that match, in a slice of just that size.
func (r *router) list(match func(traits) bool) []netip.AddrPort {
	n := 0
	for _, ep := range r.endpoints {
		if match(ep.traits) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	list := make([]netip.AddrPort, 0, n)
	for _, ep := range r.endpoints {
		if match(ep.traits) {
			list = append(list, ep.addr)
		}
	}
	return list
}

// route returns the route of one of the port's frontends. Frontends of equal
// treatment share one.
func (r *router) route(f kindFrontend) *Route {
	if r.routes[f.kind] == nil {
		r.routes[f.kind] = r.newRoute(f.kind)
	}
	route := r.routes[f.kind]
	if f.kind == LoadBalancerIP && r.ranges != nil {
		own := *route
		own.SourceRanges = admitVIP(r.ranges, f.Addr, r.node.Addrs)
		return &own
	}
	return route
}

func (r *router) newRoute(kind Kind) *Route {
	route := &Route{Port: r.port, Kind: kind, Affinity: r.affinity}
	switch {
	case kind == ClusterIP:
		route.Masquerade = MasqueradeOffCluster
		if r.node.MasqueradeAll {
			route.Masquerade = MasqueradeAlways
		}
		route.Pool = r.clusterPool
		if internalLocal(r.svc) {
			route.Pool = r.localPool
			route.WhenEmpty = r.whenNoneLocal()
		}
	case externalLocal(r.svc):
		route.Pool, route.LocalPool = r.clusterPool, r.localPool
		route.Masquerade = MasqueradeHost
		route.WhenEmpty = r.whenNoneLocal()
	default:
		route.Pool = r.clusterPool
		route.Masquerade = MasqueradeAlways
	}
	route.Others = r.othersOf(route)
	return route
}

// whenNoneLocal is the answer to clients that get local endpoints only, where there are none.
func (r *router) whenNoneLocal() Answer {
	if r.usable {
		return Drop
	}
	return Reject
}

// othersOf lists the endpoints that serve and are in none of the route's pools.
func (r *router) othersOf(route *Route) []netip.AddrPort {
	var cluster, local selection
	has := 0
	for _, pool := range []*Pool{route.Pool, route.LocalPool} {
		switch {
		case pool == nil:
		case pool == r.clusterPool:
			cluster, has = r.cluster, has|1
		case pool == r.localPool:
			local, has = r.local, has|2
		}
	}
	if r.others[has] == nil {
		r.others[has] = r.list(func(t traits) bool {
			return t.has(serving) && !cluster.includes(t) && !local.includes(t)
		})
	}
	return r.others[has]
}
