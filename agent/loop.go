package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"sluice/agent/config"
	"sluice/agent/health"
	"sluice/agent/nodeaddr"
	"sluice/agent/source"
	"sluice/proxy"
)

// loop owns everything that changes: the objects, the plans and the writers.
// All of it is touched by one goroutine, that of run; others send it messages.
type loop struct {
	cfg     config.Config
	log     *slog.Logger
	started time.Time
	source  source.Source

	objects  *objects
	facts    *nodeaddr.Facts // nil until they are known
	synced   bool
	problems []source.Problem
	proxiers []*proxier
	node     nodePlanner
	tracker  *health.Tracker

	lastWrite time.Time
	settled   bool      // the first write is done
	nextSync  time.Time // of the periodic look at flows

	batches chan batch
	addrs   chan nodeaddr.Facts
	foreign chan *proxier
	calls   chan func()
	ended   chan struct{} // closed when run returns
}

// batch is a message of the source.
type batch struct {
	changes  []source.Change
	kind     source.Kind // of exist
	exist    map[source.Name]struct{}
	problems *[]source.Problem
	synced   bool
}

// Apply implements source.Sink.
func (l *loop) Apply(ctx context.Context, changes []source.Change) error {
	return l.send(ctx, batch{changes: changes})
}

// Replace implements source.Sink.
func (l *loop) Replace(ctx context.Context, kind source.Kind, exist map[source.Name]struct{}) error {
	return l.send(ctx, batch{kind: kind, exist: exist})
}

// Synced implements source.Sink.
func (l *loop) Synced() { _ = l.send(context.Background(), batch{synced: true}) }

// SetProblems implements source.Sink.
func (l *loop) SetProblems(problems []source.Problem) {
	_ = l.send(context.Background(), batch{problems: &problems})
}

func (l *loop) send(ctx context.Context, b batch) error {
	select {
	case l.batches <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ended:
		return errEnded
	}
}

// errEnded answers who asks a loop that ran out.
var errEnded = errors.New("the agent is stopping")

// do runs fn in the loop's goroutine and waits for it.
func (l *loop) do(ctx context.Context, fn func()) error {
	done := make(chan struct{})
	select {
	case l.calls <- func() { fn(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ended:
		return errEnded
	}
}

// run takes in messages and writes what they change until ctx ends.
func (l *loop) run(ctx context.Context) {
	defer close(l.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.nextSync = time.Now().Add(l.cfg.SyncPeriod)
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-l.batches:
			l.take(b)
		case f := <-l.addrs:
			l.facts = &f
			l.replanNode()
		case p := <-l.foreign:
			l.mend(p)
		case call := <-l.calls:
			call()
		case <-timer.C:
		}
		now := time.Now()
		l.write(ctx, now)
		l.checkFlows(ctx, now)
		timer.Reset(time.Until(l.wake(time.Now())))
	}
}

// take handles a message of the source.
func (l *loop) take(b batch) {
	switch {
	case b.synced:
		if !l.synced {
			l.synced = true
			l.log.Info("all objects are known", "source", l.source.String(), "services", len(l.objects.services))
		}
	case b.problems != nil:
		l.problems = *b.problems
	case b.exist != nil:
		b.changes = l.objects.missing(b.kind, b.exist)
	}
	if len(b.changes) == 0 {
		return
	}
	d := dirty{services: map[proxy.ServiceName]struct{}{}}
	for _, c := range b.changes {
		l.objects.apply(c, l.cfg.NodeName, &d)
	}
	if d.node && l.replanNode() {
		return // with all Services
	}
	l.plan(maps.Keys(d.services))
}

// plan plans Services again in all families.
func (l *loop) plan(names func(func(proxy.ServiceName) bool)) {
	now := time.Now()
	for name := range names {
		svc, slices := l.objects.get(name)
		for _, p := range l.proxiers {
			var plan *proxy.ServicePlan
			if svc != nil {
				plan = proxy.PlanService(&p.node, svc, slices, p.slots)
			}
			l.logIgnored(p, name, plan)
			p.set(name, plan, now)
			p.publisher.plan(name, p.state.Plan(name))
		}
	}
	for _, p := range l.proxiers {
		begun, ended := p.state.ConflictChanges()
		for _, c := range begun {
			p.log.Warn("two Services claim one address; the older one has it", "conflict", c.String())
		}
		for _, c := range ended {
			p.log.Info("conflict ended", "conflict", c.String())
		}
	}
}

// logIgnored says once what is not served of a Service.
func (l *loop) logIgnored(p *proxier, name proxy.ServiceName, plan *proxy.ServicePlan) {
	if plan == nil || len(plan.Ignored) == 0 {
		return
	}
	var before []string
	if old := p.state.Plan(name); old != nil {
		before = old.Ignored
	}
	for _, what := range plan.Ignored {
		if !slices.Contains(before, what) {
			p.log.Warn("part of a Service is not served", "service", name.String(), "reason", what)
		}
	}
}

// replanNode takes in what is known of the node; it tells whether it planned all Services again.
func (l *loop) replanNode() bool {
	if l.facts == nil {
		return false
	}
	now := time.Now()
	all := false
	for _, p := range l.proxiers {
		node, settings, why := l.node.plan(p.family, l.facts, l.objects)
		if why != p.detection {
			p.log.Info("local detection", "choice", why)
			p.detection = why
		}
		p.setSettings(settings, now)
		if !sameNode(&p.node, &node) {
			p.node, all = node, true
			p.publisher.node(node.NodePortAddrs)
		}
	}
	l.tracker.SetNodeEligible(health.NodeEligible(l.objects.node))
	if all {
		l.plan(l.objects.names())
	}
	return all
}

// mend handles the news that another program changed our rules.
func (l *loop) mend(p *proxier) {
	p.repairs++
	p.log.Warn("another program changed sluice's rules; they are compared and mended", "times", p.repairs)
	p.mustReconcile(time.Now())
}

// ready tells whether all that a plan needs is known. Nothing is written before,
// for it could take away what an earlier agent put into the kernel.
func (l *loop) ready() bool { return l.synced && l.facts != nil }

// write brings into the kernel what is due. A change that comes alone is written
// at once; while changes keep coming, one write follows the other after MinSyncPeriod.
func (l *loop) write(ctx context.Context, now time.Time) {
	if !l.ready() || now.Before(l.lastWrite.Add(l.cfg.MinSyncPeriod)) {
		return
	}
	for _, p := range l.proxiers {
		if at, waiting := p.due(); waiting && !now.Before(at) {
			l.lastWrite = now
			if p.write(ctx) {
				p.publisher.written(ctx)
			}
		}
	}
	if !l.settled && l.lastWrite == now {
		// What the start needed (a list of everything, the kernel's state) is not needed again.
		l.settled = true
		debug.FreeOSMemory()
	}
}

// checkFlows looks for stale flows after writes. Each SyncPeriod it does so in any case, and what
// could not be listened at is tried again.
func (l *loop) checkFlows(ctx context.Context, now time.Time) {
	if !l.ready() {
		return
	}
	periodic := !now.Before(l.nextSync)
	if periodic {
		l.nextSync = now.Add(l.cfg.SyncPeriod)
	}
	for _, p := range l.proxiers {
		p.flowCheck = p.flowCheck || periodic
		if p.flowCheck && p.queued.IsZero() {
			p.checkFlows(ctx, time.Now())
		}
		if periodic && p.queued.IsZero() {
			p.publisher.sync(ctx)
		}
	}
}

// wake is when the loop has something to do by itself.
func (l *loop) wake(now time.Time) time.Time {
	at := l.nextSync
	for _, p := range l.proxiers {
		if retry, waiting := p.due(); waiting && l.ready() {
			at = earlier(at, later(retry, l.lastWrite.Add(l.cfg.MinSyncPeriod)))
		}
		if p.flowCheck && p.queued.IsZero() {
			at = earlier(at, later(now, p.nextFlowCheck))
		}
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
