package agent

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice/agent/health"
	"sluice/agent/metrics"
	"sluice/proxy"
	"sluice/proxy/conntrack"
)

// proxier keeps one IP family: its planned state and the kernel's. Whatever
// goes wrong in it stays in it.
type proxier struct {
	family    proxy.Family
	log       *slog.Logger
	node      proxy.Node
	state     *proxy.State
	writer    proxy.Writer // nil: it could not be opened yet
	open      func() (proxy.Writer, error)
	written   chan struct{} // closed after the first write
	watch     func()        // notices changes by other programs, once the writer is open
	publisher publisher
	metrics   *metrics.Recorder
	flows     *conntrack.Conn // nil: the kernel cannot list flows

	// reconcile says that the kernel's state is not known to be state's less pending.
	reconcile bool
	pending   []proxy.Delta
	// queued is when the oldest change that is not in the kernel came; zero if there is none.
	queued time.Time

	// flowCheck says that flows may have become stale; removed are the frontends that went since the last look.
	flowCheck bool
	removed   map[proxy.Frontend]struct{}
	// nextFlowCheck bounds the share of time that goes into looking at flows.
	nextFlowCheck time.Time

	failures  int
	retryAt   time.Time
	lastError string
	lastSync  time.Time
	lastTook  time.Duration
	drift     drift
	// detection is the choice that was logged last.
	detection string
}

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func newProxier(f proxy.Family, open func() (proxy.Writer, error), flows *conntrack.Conn, tracker *health.Tracker, log *slog.Logger) *proxier {
	log = log.With("family", f.String())
	p := &proxier{
		family: f, log: log, node: proxy.Node{Family: f},
		state: proxy.NewState(f, proxy.Settings{}), open: open, watch: func() {}, written: make(chan struct{}), flows: flows,
		publisher: newPublisher(tracker, log), removed: map[proxy.Frontend]struct{}{},
	}
	p.mustReconcile(time.Now()) // what an earlier agent left may be more than is wanted now
	return p
}

func (p *proxier) close() {
	p.publisher.close()
	if p.writer != nil {
		p.writer.Close()
	}
	if p.flows != nil {
		p.flows.Close()
	}
}

// slots is where planning goes on from: the state's slots, and before the first write the kernel's.
func (p *proxier) slots(f proxy.Frontend) (pool, localPool []netip.AddrPort) {
	if pool, localPool = p.state.Slots(f); pool == nil && localPool == nil && p.lastSync.IsZero() && p.writer != nil {
		return p.writer.Slots(f)
	}
	return pool, localPool
}

// set takes in a Service's new plan.
func (p *proxier) set(name proxy.ServiceName, plan *proxy.ServicePlan, now time.Time) {
	old := p.state.Plan(name)
	d := p.state.Set(name, plan)
	planned := p.state.Plan(name)
	p.metrics.Planned(p.family, old, planned, p.state.Frontends())
	p.publisher.plan(name, planned)
	if d.Empty() {
		return
	}
	p.queue(now)
	if p.flows != nil && d.NeedsFlowCheck() {
		p.flowCheck = true
		maps.Copy(p.removed, d.RemovedFrontends())
	}
	if !p.reconcile { // otherwise the whole state is compared anyway
		p.pending = append(p.pending, d)
	}
}

// setSettings takes in what belongs to no Service.
func (p *proxier) setSettings(s proxy.Settings, now time.Time) {
	if p.state.SetSettings(s) {
		p.mustReconcile(now)
	}
}

func (p *proxier) mustReconcile(now time.Time) {
	p.reconcile = true
	p.pending = nil
	p.queue(now)
}

func (p *proxier) queue(now time.Time) {
	if p.queued.IsZero() {
		p.queued = now
		p.publisher.tracker.Queued(p.family)
		p.metrics.Queued(p.family)
	}
}

// due tells whether something waits to be written, and when that may be.
func (p *proxier) due() (at time.Time, waiting bool) {
	if p.queued.IsZero() {
		return time.Time{}, false
	}
	return p.retryAt, true
}

// write brings what waits into the kernel.
func (p *proxier) write(ctx context.Context) bool {
	start := time.Now()
	whole := p.reconcile
	stats, err := p.bring(ctx)
	p.pending = nil
	now := time.Now()
	p.metrics.Synced(p.family, whole, now.Sub(start), err)
	if err != nil {
		p.failed(err, now.Sub(start), now)
		return false
	}
	if p.lastSync.IsZero() {
		close(p.written)
	}
	if p.failures > 0 {
		p.log.Info("rules can be written again", "failures", p.failures)
	}
	level := slog.LevelDebug
	if whole {
		if !p.drift.quietly {
			level = slog.LevelInfo
		}
		p.flowCheck = p.flows != nil // flows may have begun while the kernel was not as it should be
	}
	if changes := p.drift.mended(p.family, stats.Found, now); len(changes) > 0 {
		p.log.Log(ctx, level, "what another program had changed", "changes", changes)
	}
	p.log.Log(ctx, level, "rules written", "added", stats.Added, "removed", stats.Removed, "unchanged", stats.Unchanged,
		"took", now.Sub(start).Round(time.Microsecond), "waited", now.Sub(p.queued).Round(time.Microsecond))
	p.reconcile, p.drift.quietly, p.failures, p.lastError = false, false, 0, ""
	p.queued, p.retryAt = time.Time{}, time.Time{}
	p.lastSync, p.lastTook = now, now.Sub(start)
	p.publisher.tracker.Updated(p.family)
	return true
}

// bring has the writer write what waits.
func (p *proxier) bring(ctx context.Context) (proxy.Stats, error) {
	if p.writer == nil {
		w, err := p.open()
		if err != nil {
			return proxy.Stats{}, err
		}
		p.writer = w
		p.watch()
	}
	if p.reconcile {
		return p.writer.Reconcile(ctx, p.state)
	}
	var d proxy.Delta
	proxy.Merge(&d, p.pending...)
	return p.writer.Apply(ctx, &d)
}

// A write that failed after slowFailure, as with a program that hangs, held up the other family: it is tried again after
// so many times what it took.
const (
	slowFailure = 10 * time.Second
	slowShare   = 10
)

// failed notes an error of the writer; the next attempt reads the kernel back.
func (p *proxier) failed(err error, took time.Duration, now time.Time) {
	p.reconcile = true
	delay := min(firstRetry<<min(p.failures, 16), lastRetry)
	if took > slowFailure {
		delay = slowShare * took
	}
	delay += rand.N(delay / 4) // so that the families, and nodes that failed together, part
	p.failures++
	p.retryAt = now.Add(delay)
	if p.lastError != err.Error() {
		p.log.Error("rules not written; those in the kernel stay as they are", "error", err, "retry", delay.Round(time.Millisecond))
	}
	p.lastError = err.Error()
}

// The kernel has no list of one Service's flows, so each look is at all of the table: it
// takes at most one of flowShare parts of the time, and while changes keep coming there is one in flowPause.
const (
	flowShare = 10
	flowPause = time.Second
)

// checkFlows deletes the flows that the last changes made stale.
func (p *proxier) checkFlows(ctx context.Context, now time.Time) {
	if now.Before(p.nextFlowCheck) {
		return
	}
	p.flowCheck = false
	n, err := p.flows.DeleteStale(ctx, p.family, func(f proxy.Flow) bool { return p.state.StaleFlow(f, p.removed) })
	took := time.Since(now)
	p.nextFlowCheck = time.Now().Add(max(flowShare*took, flowPause))
	p.metrics.FlowsChecked(p.family, took, n)
	if n > 0 {
		p.log.Info("flows to endpoints that are gone deleted", "flows", n)
	}
	if err != nil {
		p.log.Warn("flows to endpoints that are gone not deleted; tried again later", "error", err)
		return
	}
	clear(p.removed)
}
