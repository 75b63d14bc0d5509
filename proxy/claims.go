package proxy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Conflict is a frontend that two Service ports claim. Holder has it.
type Conflict struct {
	Frontend
	Holder, Loser ServicePortName
}

func (c Conflict) String() string {
	return c.Frontend.String() + " of " + c.Loser.String() + " belongs to " + c.Holder.String()
}

// claim is a frontend that a Service port asks for.
type claim struct {
	Frontend
	port ServicePortName
}

// claimant is a Service that claims a frontend which others claim, too, and its route for it.
type claimant struct {
	name  ServiceName
	route *Route
}

// rank is 0 for a ClusterIP, else 1.
func (c *claimant) rank() int {
	if c.route.Kind == ClusterIP {
		return 0
	}
	return 1
}

// claimFrontends moves the claims of a Service from those of its old plan to
// those of its new one, which is in s.plans already.
func (s *State) claimFrontends(d *Delta, name ServiceName, old, new *ServicePlan) {
	claimed := make(map[Frontend]*Route, len(new.Frontends))
	var doubled []claim
	for _, f := range new.Frontends {
		if claimed[f.Frontend] == nil {
			claimed[f.Frontend] = f.Route
		} else {
			doubled = append(doubled, claim{f.Frontend, f.Route.Port})
		}
	}
	s.setDoubled(name, doubled)
	for _, f := range old.Frontends {
		if claimed[f.Frontend] == nil {
			s.release(d, name, f.Frontend)
		}
	}
	for _, f := range new.Frontends {
		if claimed[f.Frontend] == f.Route {
			s.take(d, name, f)
		}
	}
}

func (s *State) setDoubled(name ServiceName, doubled []claim) {
	if slices.Equal(s.doubled[name], doubled) {
		return
	}
	s.conflictsMoved = true
	if len(doubled) > 0 {
		s.doubled[name] = doubled
	} else {
		delete(s.doubled, name)
	}
}

// take puts in the claim of a Service to a frontend.
func (s *State) take(d *Delta, name ServiceName, f FrontendRoute) {
	holder := s.routes[f.Frontend]
	claimants := s.contested[f.Frontend]
	if len(claimants) == 0 && (holder == nil || holder.Port.ServiceName == name) {
		s.setRoute(d, f.Frontend, f.Route)
		return
	}
	if len(claimants) == 0 {
		claimants = []claimant{{holder.Port.ServiceName, holder}}
	}
	if i := slices.IndexFunc(claimants, func(c claimant) bool { return c.name == name }); i >= 0 {
		claimants[i].route = f.Route
	} else {
		claimants = append(claimants, claimant{name, f.Route})
	}
	s.contested[f.Frontend] = claimants
	s.elect(d, f.Frontend)
}

// release takes out the claim of a Service to a frontend. A frontend that
// nobody else claims has no route then.
func (s *State) release(d *Delta, name ServiceName, f Frontend) {
	if claimants := s.contested[f]; len(claimants) > 0 {
		s.contested[f] = slices.DeleteFunc(claimants, func(c claimant) bool { return c.name == name })
		s.elect(d, f)
		return
	}
	if holder := s.routes[f]; holder != nil && holder.Port.ServiceName == name {
		s.setRoute(d, f, nil)
	}
}

// elect gives a contested frontend to the oldest of its claimants, but first to one whose ClusterIP it is: the API server gives that to
// one Service alone, while externalIPs can name it before there is such a Service.
func (s *State) elect(d *Delta, f Frontend) {
	s.conflictsMoved = true
	claimants := s.contested[f]
	holder := slices.MinFunc(claimants, func(a, b claimant) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), OlderFirst(s.plans[a.name], s.plans[b.name]))
	})
	if len(claimants) == 1 {
		delete(s.contested, f)
	}
	s.setRoute(d, f, holder.route)
}

// setRoute notes the route of a frontend, and in d that it changed, if it did.
func (s *State) setRoute(d *Delta, f Frontend, r *Route) {
	old := s.routes[f]
	if r != nil {
		s.routes[f] = r
	} else {
		delete(s.routes, f)
	}
	if !old.equal(r) {
		d.Frontends = append(d.Frontends, FrontendChange{Frontend: f, Old: old, New: r})
	}
}

// Conflicts lists the frontends that several Services or several ports of one
// Service claim, sorted. The Service whose ClusterIP it is has such a frontend, else the oldest, between Services of the
// same age the first by name, within a Service the first port.
func (s *State) Conflicts() []Conflict {
	var list []Conflict
	add := func(f Frontend, loser ServicePortName) {
		if holder := s.routes[f].Port; holder != loser {
			list = append(list, Conflict{f, holder, loser})
		}
	}
	for f, claimants := range s.contested {
		for _, c := range claimants {
			add(f, c.route.Port)
		}
	}
	for _, claims := range s.doubled {
		for _, c := range claims {
			add(c.Frontend, c.port)
		}
	}
	slices.SortFunc(list, Conflict.compare)
	return slices.Compact(list)
}

// Losers are the ports of other Services that claim a frontend and do not have it, sorted.
func (s *State) Losers(f Frontend) []ServicePortName {
	var list []ServicePortName
	for _, c := range s.contested[f] {
		if port := c.route.Port; port.ServiceName != s.routes[f].Port.ServiceName {
			list = append(list, port)
		}
	}
	slices.SortFunc(list, ServicePortName.compare)
	return list
}

// ConflictChanges tells which conflicts came and went since it was called last,
// so that each can be logged once.
func (s *State) ConflictChanges() (begun, ended []Conflict) {
	if !s.conflictsMoved {
		return nil, nil
	}
	s.conflictsMoved = false
	now := map[Conflict]struct{}{}
	for _, c := range s.Conflicts() {
		now[c] = struct{}{}
		if _, known := s.reported[c]; !known {
			begun = append(begun, c)
		}
	}
	for c := range maps.Keys(s.reported) {
		if _, goesOn := now[c]; !goesOn {
			ended = append(ended, c)
		}
	}
	slices.SortFunc(ended, Conflict.compare)
	s.reported = now
	return begun, ended
}

func (c Conflict) compare(o Conflict) int {
	return cmp.Or(c.Addr.Compare(o.Addr), cmp.Compare(c.Port, o.Port), cmp.Compare(c.Protocol, o.Protocol),
		c.Loser.compare(o.Loser), c.Holder.compare(o.Holder))
}

// OlderFirst is the order in which Services get what several of them claim: by
// age, those of the same age by name.
func OlderFirst(a, b *ServicePlan) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), a.Name.Compare(b.Name))
}

// Compare orders Services by namespace, then by name.
func (n ServiceName) Compare(o ServiceName) int {
	return cmp.Or(strings.Compare(n.Namespace, o.Namespace), strings.Compare(n.Name, o.Name))
}

func (n ServicePortName) compare(o ServicePortName) int {
	return cmp.Or(n.ServiceName.Compare(o.ServiceName), strings.Compare(n.Port, o.Port), cmp.Compare(n.Protocol, o.Protocol))
}
