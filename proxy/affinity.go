package proxy

import "slices"

// affinityIDs sees to it that no two pools have the same AffinityID, although
// the ids that plans ask for are hashes.
type affinityIDs struct {
	owners map[uint32]affinityOwner
	// moved has the ids of those that did not get the one they asked for.
	moved map[affinityOwner]uint32
}

// affinityOwner is a pool: the two pools of a port ask for different ids.
type affinityOwner struct {
	port ServicePortName
	want uint32
}

func newAffinityIDs() affinityIDs {
	return affinityIDs{map[uint32]affinityOwner{}, map[affinityOwner]uint32{}}
}

// assign gives back the ids of old that new does not ask for again, takes those
// that new asks for, and returns new, or a copy of it where another pool had an
// id first: a pool gets the next free one then, and keeps it.
func (a *affinityIDs) assign(old, new *ServicePlan) *ServicePlan {
	wanted := affinityPools(new)
	a.release(old, wanted)
	var moved map[*Pool]*Pool
	for _, w := range wanted {
		if id := a.acquire(w.owner); id != w.pool.AffinityID {
			if moved == nil {
				moved = map[*Pool]*Pool{}
			}
			moved[w.pool] = &Pool{Slots: w.pool.Slots, AffinityID: id}
		}
	}
	if moved == nil {
		return new
	}
	return withPools(new, moved)
}

type affinityPool struct {
	pool  *Pool
	owner affinityOwner
}

// affinityPools lists the pools of a plan that have an AffinityID, each once.
func affinityPools(plan *ServicePlan) []affinityPool {
	if plan == nil {
		return nil
	}
	var list []affinityPool
	for _, f := range plan.Frontends {
		for _, pool := range [...]*Pool{f.Route.Pool, f.Route.LocalPool} {
			if pool == nil || pool.AffinityID == 0 ||
				slices.ContainsFunc(list, func(have affinityPool) bool { return have.pool == pool }) {
				continue
			}
			list = append(list, affinityPool{pool, affinityOwner{f.Route.Port, pool.AffinityID}})
		}
	}
	return list
}

func (a *affinityIDs) release(old *ServicePlan, wanted []affinityPool) {
	for _, had := range affinityPools(old) {
		owner := a.owners[had.pool.AffinityID]
		if !slices.ContainsFunc(wanted, func(w affinityPool) bool { return w.owner == owner }) {
			delete(a.owners, had.pool.AffinityID)
			delete(a.moved, owner)
		}
	}
}

func (a *affinityIDs) acquire(owner affinityOwner) uint32 {
	if id, ok := a.moved[owner]; ok {
		return id
	}
	id := owner.want
	for {
		holder, taken := a.owners[id]
		if taken && holder == owner {
			return id
		}
		if !taken && id != 0 { // 0 means no affinity
			break
		}
		id++
	}
	a.owners[id] = owner
	if id != owner.want {
		a.moved[owner] = id
	}
	return id
}

// withPools returns a copy of a plan in which the pools are replaced.
func withPools(plan *ServicePlan, by map[*Pool]*Pool) *ServicePlan {
	swap := func(p *Pool) *Pool {
		if other := by[p]; other != nil {
			return other
		}
		return p
	}
	routes := map[*Route]*Route{}
	replace := func(list []FrontendRoute) []FrontendRoute {
		list = slices.Clone(list)
		for i, f := range list {
			if routes[f.Route] == nil {
				r := *f.Route
				r.Pool, r.LocalPool = swap(r.Pool), swap(r.LocalPool)
				routes[f.Route] = &r
			}
			list[i].Route = routes[f.Route]
		}
		return list
	}
	copied := *plan
	copied.Frontends, copied.Localhost = replace(plan.Frontends), replace(plan.Localhost)
	return &copied
}
