package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/agent/health"
	"sluice/agent/source"
	"sluice/proxy"
	"sluice/store"
)

// ready tells whether all that planning needs is known, from the source or from
// the cache. Nothing is planned and written before, for that could take away what an
// earlier agent put into the kernel.
func (l *loop) ready() bool { return (l.synced || l.cached.Complete) && l.facts != nil }

// plan plans again what became dirty.
func (l *loop) plan() {
	if !l.ready() {
		return
	}
	all := !l.planned || l.replan
	_, servers := l.dirty.Services[apiServerService]
	if node := l.dirty.Node || l.node.changed || servers && l.node.externalIPs == proxy.ExternalIPsForeign; all || node {
		all = l.planNode() || all
	} else if len(l.dirty.Services) == 0 {
		return
	}
	if all {
		l.planAll()
	} else {
		for name := range l.dirty.Services {
			l.planService(l.read(name))
		}
	}
	l.settleBudget(time.Now())
	if all || len(l.dirty.Services) > 0 {
		l.logConflicts()
	}
	l.planned, l.replan, l.dirty = true, false, store.Dirty{}
	for _, p := range l.proxiers {
		if p.queued.IsZero() {
			l.metrics.InStep(p.family)
		}
	}
}

// readAhead is how many Services planAll reads before they are planned.
const readAhead = 32

// stored is a Service as the store has it.
type stored struct {
	name   source.Name
	svc    *corev1.Service // nil: it is no more
	slices []*discoveryv1.EndpointSlice
	err    error
}

func (l *loop) read(name source.Name) stored {
	svc, slices, err := l.store.Service(name)
	return stored{name, svc, slices, err}
}

// planAll plans all Services, and takes away those that are no more. Reading is half of the work, and goes on
// beside planning; nothing else uses the store meanwhile.
func (l *loop) planAll() {
	ahead := make(chan stored, readAhead)
	go func() {
		defer close(ahead)
		for name := range l.store.Names() {
			ahead <- l.read(name)
		}
	}()
	exist := map[proxy.ServiceName]struct{}{}
	for s := range ahead {
		exist[proxy.ServiceName(s.name)] = struct{}{}
		l.planService(s)
	}
	for _, p := range l.proxiers {
		var gone []proxy.ServiceName
		for plan := range p.state.Plans() {
			if _, ok := exist[plan.Name]; !ok {
				gone = append(gone, plan.Name)
			}
		}
		for _, name := range gone {
			l.planService(l.read(source.Name(name)))
		}
	}
}

// planService plans a Service in all families. If it could not be read, its plan stays.
func (l *loop) planService(s stored) {
	if s.err != nil {
		l.log.Warn("a Service stays as it was planned before", "error", s.err)
		return
	}
	now := time.Now()
	name := proxy.ServiceName(s.name)
	delete(l.rates.endpoints, name)
	plans := make([]*proxy.ServicePlan, len(l.proxiers))
	var created, weight int64
	for i, p := range l.proxiers {
		if s.svc == nil {
			continue
		}
		if plans[i] = proxy.PlanService(&p.node, s.svc, s.slices, p.slots); plans[i] != nil {
			created = plans[i].Created
			weight += weigh(plans[i])
		}
	}
	left, evicted := l.budget.set(name, created, weight)
	for i, p := range l.proxiers {
		plan := plans[i]
		if left && plan != nil {
			if old := p.state.Plan(name); old == nil || len(old.Frontends) > 0 {
				l.warn(s.svc, reasonNotServed, notFitting)
			}
			plan = leftOut(plan)
		} else {
			l.logIgnored(p, s.svc, plan)
		}
		p.set(name, plan, now)
	}
	l.leaveOut(evicted, now)
}

// leaveOut takes away what is planned for Services that do not fit into the memory any more.
func (l *loop) leaveOut(names []proxy.ServiceName, now time.Time) {
	for _, name := range names {
		for _, p := range l.proxiers {
			if plan := p.state.Plan(name); plan != nil {
				p.set(name, leftOut(plan), now)
			}
		}
	}
}

// settleBudget plans Services that fit into the memory by now, and tells of those that do not.
func (l *loop) settleBudget(now time.Time) {
	admitted, evicted := l.budget.settle()
	l.leaveOut(evicted, now)
	for _, name := range admitted {
		l.planService(l.read(source.Name(name)))
	}
	if l.budget.fresh > 0 {
		l.log.Error("Services are not served: all together need more memory than this agent may use; older ones go on",
			"not served", len(l.budget.left), "new among them", l.budget.fresh, "served", len(l.budget.served),
			"remedy", "delete what is not needed, or raise GOMEMLIMIT and MemoryMax in the unit; status has their names")
		l.budget.fresh = 0
	}
}

// planNode takes in what is known of the node, and tells whether that concerns all Services.
func (l *loop) planNode() (all bool) {
	l.node.changed = false
	node, err := l.store.Node()
	if err != nil {
		l.log.Warn("what is known of the node stays as it is", "error", err)
		return false
	}
	cidrs, err := l.store.ServiceCIDRs()
	if err != nil {
		l.log.Warn("what is known of the node stays as it is", "error", err)
		return false
	}
	_, servers, err := l.store.Service(apiServerService)
	if err != nil {
		l.log.Warn("what is known of the node stays as it is", "error", err)
		return false
	}
	if known := node != nil; known != l.nodeKnown || !l.planned {
		l.nodeKnown = known
		if !known && l.synced {
			l.log.Warn("there is no Node object of this node's name: its zone and pod CIDRs are unknown; set --hostname-override if the name is another", "node", l.cfg.NodeName)
		}
	}
	now := time.Now()
	for _, p := range l.proxiers {
		planned, settings, why := l.node.plan(p.family, l.facts, node, cidrs, servers)
		if why != p.detection {
			p.log.Info("local detection", "choice", why)
			p.detection = why
		}
		p.setSettings(settings, now)
		if !sameNode(&p.node, &planned) {
			p.node, all = planned, true
			p.publisher.node(planned.NodePortAddrs)
		}
	}
	l.tracker.SetNodeEligible(health.NodeEligible(node))
	return all
}
