package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sluice/agent/config"
	"sluice/agent/health"
	"sluice/agent/metrics"
	"sluice/agent/nodeaddr"
	"sluice/agent/notify"
	"sluice/agent/source"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/store"
)

// loop owns everything that changes: the objects, the plans and the writers.
// All of it is touched by one goroutine, that of run; others send it messages.
type loop struct {
	cfg     config.Config
	log     *slog.Logger
	started time.Time
	source  source.Source
	mode    string // proxy.ModeNFTables or proxy.ModeIPTables
	variant string // of iptables; empty: the one that the machine uses
	offline bool   // it plans and answers, and writes nothing
	// elsewhere: the node is another machine, or its kernel may not be asked.
	elsewhere bool
	// installed are the variants of iptables that chooseMode found; nil if it did not look.
	installed func(proxy.Family) []iptables.Variant

	store  *store.Store
	cached store.Cached    // what the cache had at the start
	facts  *nodeaddr.Facts // nil until they are known
	// synced says that the source has handed over everything since this agent started,
	// or since the store lost it.
	synced bool
	// planned says that all Services are planned. They are not before all that is needed is known.
	planned   bool
	replan    bool // all Services are to be planned again, once everything is known
	nodeKnown bool // there is a Node object of this node's name
	problems  []source.Problem
	proxiers  []*proxier
	node      nodePlanner
	budget    budget
	tracker   *health.Tracker
	metrics   *metrics.Recorder
	notifier  *notify.Notifier
	rates     rates

	lastWrite time.Time
	// release is when the memory is given back that a list of everything needed; zero if it was.
	release  time.Time
	dirty    store.Dirty
	nextSync time.Time // of the periodic look at flows

	batches chan batch
	addrs   chan nodeaddr.Facts
	foreign chan foreignChange
	calls   chan func()
	restart chan struct{} // the source is to begin anew
	ended   chan struct{} // closed when run returns
}

// batch is a message of the source.
type batch struct {
	changes  []source.Change
	kind     source.Kind // of exist
	exist    map[source.Name]struct{}
	problems *[]source.Problem
	synced   bool
	inStep   source.Kind // everything of it up to version was handed over
	version  string
}

// Apply implements source.Sink.
func (l *loop) Apply(ctx context.Context, changes []source.Change) error {
	return l.send(ctx, batch{changes: changes})
}

// Replace implements source.Sink.
func (l *loop) Replace(ctx context.Context, kind source.Kind, exist map[source.Name]struct{}) error {
	return l.send(ctx, batch{kind: kind, exist: exist})
}

// inStep is told how far the source is in step with where it reads from.
func (l *loop) inStep(kind source.Kind, version string) {
	_ = l.send(context.Background(), batch{inStep: kind, version: version})
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
			l.node.changed = true
		case c := <-l.foreign:
			l.mend(c)
		case <-l.store.Lost():
			l.lost()
		case call := <-l.calls:
			call()
		case <-timer.C:
		}
		l.plan()
		now := time.Now()
		l.write(ctx, now)
		l.checkFlows(ctx, now)
		l.releaseMemory(now)
		timer.Reset(time.Until(l.wake()))
	}
}

// take handles a message of the source.
func (l *loop) take(b batch) {
	switch {
	case b.synced:
		if !l.synced {
			l.synced, l.release = true, l.releaseTime()
			for _, kind := range source.Kinds {
				l.store.InStep(kind, l.store.ResourceVersion(kind), time.Now())
			}
			l.log.Info("all objects are known", "source", l.source.String(), "services", l.store.Counts()[source.Service])
		}
	case b.problems != nil:
		l.problems = *b.problems
	case b.exist != nil:
		b.changes = l.store.Missing(b.kind, b.exist)
	case b.inStep != "":
		l.store.InStep(b.inStep, b.version, time.Now())
	}
	l.metrics.SetSource(l.synced, len(l.problems))
	for i := range b.changes {
		c := &b.changes[i]
		l.identify(c)
		var d store.Dirty
		l.store.Apply(*c, &d)
		l.metrics.Received(*c, d.Node || len(d.Services) > 0)
		l.dirty.Merge(&d)
	}
}

// lost handles the loss of the cache file while it was in use. Plans stay as they are, and rules are kept to
// them, until the source has handed over everything anew.
func (l *loop) lost() {
	l.synced, l.replan, l.cached = false, true, store.Cached{Why: "the cache file was lost"}
	l.metrics.SetSource(l.synced, len(l.problems))
	select {
	case l.restart <- struct{}{}:
	default: // it is about to anyway
	}
}

// write brings into the kernel what is due. A change that comes alone is written
// at once; while changes keep coming, one write follows the other after MinSyncPeriod.
func (l *loop) write(ctx context.Context, now time.Time) {
	if !l.planned || l.offline {
		return
	}
	paced := now.Before(l.lastWrite.Add(l.cfg.MinSyncPeriod))
	for _, p := range l.proxiers {
		if at, waiting := p.due(); waiting && !paced && !now.Before(at) {
			l.lastWrite = now
			if p.write(ctx) {
				l.follow(ctx, p, p.publisher.changed)
				l.notifier.Ready()
			}
		}
	}
	for _, p := range l.proxiers {
		if p.queued.IsZero() && p.publisher.changed {
			l.follow(ctx, p, true) // readiness, for example, can change without a rule
		}
	}
}

// checkFlows looks for stale flows after writes. Each SyncPeriod it does so in any case, and what
// could not be listened at is tried again.
func (l *loop) checkFlows(ctx context.Context, now time.Time) {
	periodic := !now.Before(l.nextSync)
	if periodic {
		l.nextSync = now.Add(l.cfg.SyncPeriod)
	}
	if !l.planned || l.offline {
		return
	}
	for _, p := range l.proxiers {
		p.flowCheck = p.flowCheck || periodic && p.flows != nil
		if p.flowCheck && p.queued.IsZero() {
			p.checkFlows(ctx, time.Now())
		}
		if periodic && p.queued.IsZero() {
			l.follow(ctx, p, true)
		}
	}
}

// wake is when the loop has something to do by itself. It is only about what write and
// checkFlows then do: anything else would make the loop turn without a pause.
func (l *loop) wake() time.Time {
	at := l.nextSync
	if !l.release.IsZero() {
		at = earlier(at, l.release)
	}
	if !l.planned || l.offline {
		return at
	}
	for _, p := range l.proxiers {
		if retry, waiting := p.due(); waiting {
			at = earlier(at, later(retry, l.lastWrite.Add(l.cfg.MinSyncPeriod)))
		} else if p.flowCheck {
			at = earlier(at, p.nextFlowCheck)
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
