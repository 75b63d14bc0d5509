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
	for _, p := range l.proxiers {
		var plan *proxy.ServicePlan
		if s.svc != nil {
			plan = proxy.PlanService(&p.node, s.svc, s.slices, p.slots)
		}
		l.logIgnored(p, s.svc, plan)
		p.set(name, plan, now)
		p.publisher.plan(name, p.state.Plan(name))
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
