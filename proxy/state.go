package proxy

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// State is the desired state of one family: the plans of all Services, and who
// has which frontend. It is not safe for concurrent use.
type State struct {
	family   Family
	settings Settings
	plans    map[ServiceName]*ServicePlan
	// routes are the frontends with the route of the Service that has each.
	routes map[Frontend]*Route
	// contested names the Services that claim a frontend, where they are several.
	contested map[Frontend][]claimant
	// doubled are the ports of a Service that claim a frontend of another port of the same Service.
	doubled map[ServiceName][]claim
	// reported are the conflicts that ConflictChanges told last; conflictsMoved says that they may be others now.
	reported       map[Conflict]struct{}
	conflictsMoved bool

	clusterIPs     addrCounts
	localEndpoints addrCounts
	affinity       affinityIDs
}

// NewState returns the state of a family that has no Services.
func NewState(f Family, s Settings) *State {
	return &State{
		family:         f,
		settings:       s,
		plans:          map[ServiceName]*ServicePlan{},
		routes:         map[Frontend]*Route{},
		contested:      map[Frontend][]claimant{},
		doubled:        map[ServiceName][]claim{},
		reported:       map[Conflict]struct{}{},
		clusterIPs:     addrCounts{},
		localEndpoints: addrCounts{},
		affinity:       newAffinityIDs(),
	}
}

// Family returns the family of the state.
func (s *State) Family() Family { return s.family }

// Settings returns what SetSettings or NewState was given last.
func (s *State) Settings() Settings { return s.settings }

// SetSettings replaces the settings and tells whether that changed anything.
func (s *State) SetSettings(n Settings) (changed bool) {
	o := s.settings
	s.settings = n
	return o.Detection.Mode != n.Detection.Mode ||
		o.Detection.Interface != n.Detection.Interface ||
		!slices.Equal(o.Detection.PodCIDRs, n.Detection.PodCIDRs) ||
		!slices.Equal(o.ServiceCIDRs, n.ServiceCIDRs)
}

// Set replaces the plan of a Service and returns what that changes; nil removes
// it. The plan belongs to the state from then on.
func (s *State) Set(name ServiceName, plan *ServicePlan) Delta {
	var d Delta
	old := s.plans[name]
	if old == nil && plan == nil {
		return d
	}
	plan = s.affinity.assign(old, plan)
	if plan != nil {
		s.plans[name] = plan
	} else {
		delete(s.plans, name)
	}
	if old == nil {
		old = &ServicePlan{}
	}
	if plan == nil {
		plan = &ServicePlan{}
	}
	s.claimFrontends(&d, name, old, plan)
	d.AddedClusterIPs, d.RemovedClusterIPs = s.clusterIPs.replace(old.ClusterIPs, plan.ClusterIPs)
	d.AddedLocalEndpoints, d.RemovedLocalEndpoints = s.localEndpoints.replace(old.LocalEndpoints, plan.LocalEndpoints)
	return d
}

// Plan returns the plan of a Service, nil if it has none. Its pools may have
// other affinity ids than the plan that Set was given.
func (s *State) Plan(name ServiceName) *ServicePlan { return s.plans[name] }

// Plans goes through the plans of all Services, in no order.
func (s *State) Plans() iter.Seq[*ServicePlan] { return maps.Values(s.plans) }

// Route returns the route of the Service that has the frontend, nil if none has.
func (s *State) Route(f Frontend) *Route { return s.routes[f] }

// Routes goes through all frontends, each with the route of the Service that has it, in no order.
func (s *State) Routes() iter.Seq2[Frontend, *Route] { return maps.All(s.routes) }

// Frontends counts those that have a route.
func (s *State) Frontends() int { return len(s.routes) }

// ClusterIPs goes through the ClusterIPs of all Services, each once, in no order.
func (s *State) ClusterIPs() iter.Seq[netip.Addr] { return maps.Keys(s.clusterIPs) }

// LocalEndpoints goes through the addresses of pool members on this node, each once, in no order.
func (s *State) LocalEndpoints() iter.Seq[netip.Addr] { return maps.Keys(s.localEndpoints) }

// Slots is a SlotsFunc: planning with it changes as few slots as it can.
func (s *State) Slots(f Frontend) (pool, localPool []netip.AddrPort) {
	if r := s.routes[f]; r != nil {
		return r.Pool.slots(), r.LocalPool.slots()
	}
	return nil, nil
}

// slots returns the slots of a pool, or none of no pool.
func (p *Pool) slots() []netip.AddrPort {
	if p == nil {
		return nil
	}
	return p.Slots
}
