// Package metrics tells Prometheus, or whoever asks, how the agent is: kube-proxy's
// metrics under their names where they apply, and the agent's own.
package metrics

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/agent/health"
	"sluice/agent/source"
	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/store"
)

// DefaultServices is for how many Services new connections are told, unless Options say otherwise.
const DefaultServices = 500

// Options are what a Recorder is made of.
type Options struct {
	// Families are those that are served.
	Families []proxy.Family
	// Store is the cache; nil for none. Health answers /healthz and /livez; nil for none.
	Store  *store.Store
	Health *health.Tracker
	// InStep tells when what is known of each kind was in step with the source; nil where that is always so.
	InStep func() map[source.Kind]time.Time
	// Services is the greatest number of Services for which new connections are told; 0 tells of none.
	Services int
	// ReadCounters reads the counters of a family from the kernel; nil is nft.ReadCounters.
	ReadCounters func(proxy.Family, func(nft.Counter)) error
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log gets what goes wrong; nil is slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.ReadCounters == nil {
		o.ReadCounters = func(f proxy.Family, fn func(nft.Counter)) error {
			return nft.ReadCounters(nft.Options{Family: f}, fn)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Recorder holds the metrics. Its methods other than Write are for one goroutine, that of
// the agent's loop; none of them waits for a scrape. A nil Recorder records nothing.
type Recorder struct {
	o        Options
	registry registry
	started  time.Time
	families map[proxy.Family]*recorded
	changes  changes
	source   sourceGauges
	// size is the last page's, so that the next one's buffer need not grow.
	size atomic.Int64
}

// New returns a Recorder in which nothing has happened yet.
func New(o Options) *Recorder {
	o = o.withDefaults()
	r := &Recorder{o: o, started: o.Now(), families: map[proxy.Family]*recorded{}}
	r.addKubeProxy()
	r.addOwn()
	r.addCache()
	r.addFlows()
	r.addConnections()
	r.addProcess()
	return r
}

// Descs lists all metrics in the order in which they are shown.
func (r *Recorder) Descs() []Desc {
	var all []Desc
	for _, f := range r.registry.families {
		all = append(all, f.Desc)
	}
	return all
}

// Write writes all metrics in Prometheus' text format, version 0.0.4. It may be called from any goroutine.
func (r *Recorder) Write(to *bytes.Buffer) {
	to.Grow(int(r.size.Load()) + 256)
	begin := to.Len()
	r.registry.write(to)
	writeProcess(to)
	r.size.Store(int64(to.Len() - begin))
}

// Received notes a change that the source handed over; changed tells whether that was any news.
func (r *Recorder) Received(c source.Change, changed bool) {
	if r == nil {
		return
	}
	switch c.Kind {
	case source.Service:
		r.changes.services.note(changed)
	case source.EndpointSlice:
		r.changes.slices.note(changed)
	}
	if !changed {
		return
	}
	for _, m := range r.families {
		m.inStep = false
	}
	r.noteTrigger(c)
}

// SetSource notes whether the source has handed over everything there is, and how many things it cannot take up.
func (r *Recorder) SetSource(synced bool, problems int) {
	if r == nil {
		return
	}
	r.source.synced.Set(0)
	if synced {
		r.source.synced.Set(1)
	}
	r.source.problems.Set(float64(problems))
}

// Planned notes that a Service's plan took the place of another, nil for none, and how many frontends all have then.
func (r *Recorder) Planned(f proxy.Family, old, plan *proxy.ServicePlan, frontends int) {
	if m := r.of(f); m != nil {
		m.plans.frontends.Set(float64(frontends))
		m.plans.add(tally(old), -1)
		m.plans.add(tally(plan), 1)
	}
}

// Served returns how many Services are served, and the sum of their endpoints in both families.
func (r *Recorder) Served() (services, endpoints int) {
	if r == nil {
		return 0, 0
	}
	for _, m := range r.families {
		services = max(services, int(m.plans.services.Get()))
		endpoints += int(m.plans.endpoints.Get())
	}
	return services, endpoints
}

// Queued notes that something is to be written to the kernel.
func (r *Recorder) Queued(f proxy.Family) {
	if m := r.of(f); m != nil {
		m.lastQueued.Set(seconds(r.o.Now()))
	}
}

// Synced notes a write to the kernel: of everything (full) or of changes, how long it took, and its error.
func (r *Recorder) Synced(f proxy.Family, full bool, took time.Duration, err error) {
	m := r.of(f)
	if m == nil {
		return
	}
	m.sync.Update(took.Seconds())
	if full {
		m.fullSync.Update(took.Seconds())
	} else {
		m.partialSync.Update(took.Seconds())
	}
	if err != nil {
		m.syncFailures.Inc()
		return
	}
	m.lastSync.Set(seconds(r.o.Now()))
	r.InStep(f)
}

// InStep notes that the kernel has everything of a family that was received: after a write, or
// when nothing was to be written.
func (r *Recorder) InStep(f proxy.Family) {
	m := r.of(f)
	if m == nil {
		return
	}
	now := r.o.Now()
	for _, t := range m.triggers {
		m.programming.Update(max(0, now.Sub(t).Seconds())) // the clocks of two machines differ
	}
	m.triggers = m.triggers[:0]
	m.inStep = true
	for _, m := range r.families {
		if !m.inStep {
			return
		}
	}
	r.changes.services.pending.Set(0)
	r.changes.slices.pending.Set(0)
}

// FlowsChecked notes a look at the flows that conntrack holds, how long it took, and how many were deleted.
func (r *Recorder) FlowsChecked(f proxy.Family, took time.Duration, deleted int) {
	if m := r.of(f); m != nil {
		m.flowCheck.Update(took.Seconds())
		m.flowsDeleted.Add(deleted)
	}
}

// Repaired notes that another program had changed the rules.
func (r *Recorder) Repaired(f proxy.Family) {
	if m := r.of(f); m != nil {
		m.repairs.Inc()
	}
}

// SetLocalNodePorts notes how many listeners there are for NodePorts at the loopback address, and how
// often one could not be had since the start.
func (r *Recorder) SetLocalNodePorts(f proxy.Family, listeners int, failures uint64) {
	if m := r.of(f); m != nil {
		m.localListeners.Set(float64(listeners))
		m.localFailures.Set(failures)
	}
}

func (r *Recorder) of(f proxy.Family) *recorded {
	if r == nil {
		return nil
	}
	return r.families[f]
}

// seconds is a time as metrics have it: in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
