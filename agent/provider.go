package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/agent/explain"
	"sluice/agent/source"
	"sluice/agent/status"
	"sluice/agent/sysctl"
	"sluice/agent/version"
	"sluice/proxy"
	"sluice/store"
)

// Status implements status.Provider.
func (l *loop) Status(ctx context.Context) (s status.Status, err error) {
	err = l.do(ctx, func() { s = l.status() })
	return s, err
}

func (l *loop) status() status.Status {
	now := time.Now()
	s := status.Status{
		Version: version.Get().Version, PID: os.Getpid(), Started: byTheClock(l.started, now), Mode: l.mode,
		Node: l.cfg.NodeName, NodeKnown: l.nodeKnown,
		Source: l.source.String(), Synced: l.synced, Objects: l.store.Counts(),
		Problems: slices.Clone(l.problems),
	}
	for i := range s.Problems {
		s.Problems[i].Since = byTheClock(s.Problems[i].Since, now)
	}
	if !l.planned {
		s.Reasons = append(s.Reasons, "Not all objects are known yet: nothing was written since the start.")
	}
	s.Cache = l.cacheStatus()
	if flows, err := sysctl.ReadFlows(sysctl.Root); err == nil {
		s.Flows = &flows
	}
	if l.facts != nil {
		s.NodeAddresses = l.facts.All()
	}
	served := map[proxy.ServiceName]bool{}
	for _, p := range l.proxiers {
		s.NodePortAddresses = append(s.NodePortAddresses, p.node.NodePortAddrs...)
		if p.node.LocalhostNodePorts {
			s.NodePortAddresses = append(s.NodePortAddresses, p.family.Loopback())
		}
		f := p.status(now)
		s.Families = append(s.Families, f)
		for _, d := range p.drift.last {
			d.Time = byTheClock(d.Time, now)
			s.Drift = append(s.Drift, d)
		}
		if f.Services > 0 || s.Detection == "" { // a family that no Service uses is of no interest
			s.Detection = strings.TrimSpace(s.Detection + "\n" + p.detection)
		}
		for plan := range p.state.Plans() {
			served[plan.Name] = true
			for _, what := range plan.Ignored {
				s.Conflicts = append(s.Conflicts, fmt.Sprintf("%v: %s", plan.Name, what))
			}
		}
		for _, c := range p.state.Conflicts() {
			s.Conflicts = append(s.Conflicts, c.String())
		}
		for name, why := range p.publisher.servers.Failures() {
			s.Conflicts = append(s.Conflicts, fmt.Sprintf("%v: %s", name, why))
		}
		if p.lastError != "" {
			s.Reasons = append(s.Reasons, fmt.Sprintf("%v rules cannot be written: %s.", p.family, p.lastError))
		}
	}
	slices.Sort(s.Conflicts)
	s.Conflicts = slices.Compact(s.Conflicts)
	s.Services = len(served)
	s.Healthy = len(s.Reasons) == 0
	return s
}

// byTheClock is when something was by the clock as it is now. Who reads it takes the difference to his own for its age, and boards
// without a clock of their own have theirs set by years when the network comes.
func byTheClock(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now)).Round(0)
}

func (l *loop) cacheStatus() status.Cache {
	stats := l.store.Stats()
	c := status.Cache{
		Path: l.cachePath(), Serving: !l.synced && l.cached.Complete,
		Size: stats.FileSize, BytesWritten: stats.BytesWritten, Waiting: stats.Waiting,
	}
	c.Age, _ = l.knowledgeAge()
	if stats.LastError != nil {
		c.LastError = stats.LastError.Error() + "; " + store.Remedy(stats.LastError)
	}
	return c
}

func (p *proxier) status(now time.Time) status.Family {
	f := status.Family{
		Family: p.family, LastSync: byTheClock(p.lastSync, now), LastSyncDuration: p.lastTook, LastError: p.lastError,
		Pending: !p.queued.IsZero(), Repairs: p.drift.repairs,
	}
	if p.failures > 0 {
		f.RetryAt = byTheClock(p.retryAt, now)
	}
	endpoints := map[netip.AddrPort]struct{}{}
	for range p.state.Plans() {
		f.Services++
	}
	for _, r := range p.state.Routes() {
		f.Frontends++
		for _, pool := range []*proxy.Pool{r.Pool, r.LocalPool} {
			if pool != nil {
				for _, e := range pool.Slots {
					endpoints[e] = struct{}{}
				}
			}
		}
	}
	f.Endpoints = len(endpoints)
	return f
}

// conflicts are those of both families.
func (l *loop) conflicts() (list []proxy.Conflict) {
	for _, p := range l.proxiers {
		list = append(list, p.state.Conflicts()...)
	}
	return list
}

// Services implements status.Provider.
func (l *loop) Services(ctx context.Context) (list []status.Service, err error) {
	err = l.do(ctx, func() { list = l.describe(l.served()) })
	return list, err
}

// describe makes a line for each Service.
func (l *loop) describe(services []servedService) (list []status.Service) {
	conflicts := l.conflicts()
	lost, notServed := status.NewLost(conflicts), map[proxy.ServiceName][]string{}
	for _, c := range conflicts {
		notServed[c.Loser.ServiceName] = append(notServed[c.Loser.ServiceName], c.String())
	}
	for _, s := range services {
		endpoints := status.NewEndpoints(s.service, s.slices, l.cfg.NodeName, lost, s.plans...)
		row := status.NewService(s.service, endpoints, s.plans...)
		row.NotServed = append(row.NotServed, notServed[s.plans[0].Name]...)
		list = append(list, row)
	}
	return list
}

// Endpoints implements status.Provider.
func (l *loop) Endpoints(ctx context.Context) (list []status.Endpoint, err error) {
	err = l.do(ctx, func() {
		lost := status.NewLost(l.conflicts())
		for _, s := range l.served() {
			list = append(list, status.NewEndpoints(s.service, s.slices, l.cfg.NodeName, lost, s.plans...)...)
		}
	})
	return list, err
}

// Explain implements status.Provider.
func (l *loop) Explain(ctx context.Context, q status.Question) (paths []status.Path, err error) {
	var answers []explain.Answer
	ended := l.do(ctx, func() {
		l.release = l.releaseTime()
		lost := status.NewLost(l.conflicts())
		var views []explain.View
		for _, p := range l.proxiers {
			views = append(views, explain.View{Node: &p.node, State: p.state, Rules: l.rules(p)})
		}
		answers, err = explain.Explain(ctx, q, views, func(name proxy.ServiceName) (status.Service, []status.Endpoint) {
			s, found := l.servedService(source.Name(name))
			if !found {
				return status.Service{}, nil // its plan is all there is
			}
			endpoints := status.NewEndpoints(s.service, s.slices, l.cfg.NodeName, lost, s.plans...)
			return status.NewService(s.service, endpoints, s.plans...), endpoints
		})
	})
	if err := errors.Join(ended, err); err != nil {
		return nil, err
	}
	// Others' chains can be many: the loop does not wait while they are read.
	judge := func(p proxy.Passage) ([]proxy.Block, error) { return nil, nil }
	if !l.elsewhere {
		fw := firewalls{installed: l.installed}
		defer fw.close()
		judge = func(p proxy.Passage) ([]proxy.Block, error) { return fw.judge(ctx, p) }
	}
	return explain.Block(answers, judge), nil
}

// servedService is a Service with its plans in the families it is served in.
type servedService struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	plans   []*proxy.ServicePlan
}

// served lists the Services that are served, by namespace and name.
func (l *loop) served() []servedService {
	var list []servedService
	for name := range l.store.Names() {
		if s, found := l.servedService(name); found {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b servedService) int { return a.plans[0].Name.Compare(b.plans[0].Name) })
	return list
}

// servedService finds a Service; found is false if it is not served, or cannot be read.
func (l *loop) servedService(name source.Name) (s servedService, found bool) {
	for _, p := range l.proxiers {
		if plan := p.state.Plan(proxy.ServiceName(name)); plan != nil {
			s.plans = append(s.plans, plan)
		}
	}
	if len(s.plans) == 0 {
		return s, false
	}
	var err error
	s.service, s.slices, err = l.store.Service(name)
	return s, err == nil && s.service != nil
}

var _ status.Provider = (*loop)(nil)
