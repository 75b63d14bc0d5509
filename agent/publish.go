package agent

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"sluice/agent/health"
	"sluice/agent/localport"
	"sluice/proxy"
)

// publisher serves, beside the kernel, what a family's plans ask for: the
// healthCheckNodePorts, and NodePorts at the loopback address. It follows the
// plans only once the kernel does.
type publisher struct {
	tracker *health.Tracker
	checks  map[proxy.ServiceName]proxy.HealthCheck
	local   map[proxy.ServiceName]*proxy.ServicePlan // with NodePorts at the loopback address
	addrs   []netip.Addr                             // where healthCheckNodePorts are served
	changed bool

	servers *health.Servers
	// ports is nil until a NodePort at the loopback address is asked for.
	ports *localport.Proxy
	share descriptors
	told  map[proxy.ServiceName]string // failures of servers that the Services' events tell
	log   *slog.Logger
}

func newPublisher(tracker *health.Tracker, log *slog.Logger) publisher {
	share := shareDescriptors(openLimit())
	return publisher{
		tracker: tracker, share: share, log: log,
		checks: map[proxy.ServiceName]proxy.HealthCheck{}, local: map[proxy.ServiceName]*proxy.ServicePlan{},
		servers: health.NewServers(tracker.Healthy, health.Limits{Listeners: share.listeners, Conns: share.healthConns}, health.Options{Log: log}),
	}
}

// plan notes what a Service's plan asks for; nil asks for nothing.
func (p *publisher) plan(name proxy.ServiceName, plan *proxy.ServicePlan) {
	if plan != nil && plan.HealthCheck != nil {
		p.changed = p.changed || p.checks[name] != *plan.HealthCheck
		p.checks[name] = *plan.HealthCheck
	} else if _, had := p.checks[name]; had {
		delete(p.checks, name)
		p.changed = true
	}
	if plan != nil && len(plan.Localhost) > 0 {
		p.local[name] = plan
		p.changed = true
	} else if _, had := p.local[name]; had {
		delete(p.local, name)
		p.changed = true
	}
}

// node notes the addresses that serve NodePorts.
func (p *publisher) node(addrs []netip.Addr) {
	p.addrs = addrs
	p.changed = true
}

// sync opens and closes listeners. Those that could not be opened before are tried again.
func (p *publisher) sync(ctx context.Context) {
	p.changed = false
	p.servers.Sync(ctx, maps.Clone(p.checks), p.addrs)
	if len(p.local) == 0 && p.ports == nil {
		return
	}
	if p.ports == nil {
		p.ports = localport.New(localport.Options{MaxConns: p.share.localConns, MaxListeners: p.share.listeners, Log: p.log})
	}
	routes := map[netip.AddrPort]*proxy.Route{}
	for _, plan := range slices.SortedFunc(maps.Values(p.local), proxy.OlderFirst) {
		for _, f := range plan.Localhost {
			at := netip.AddrPortFrom(f.Addr, f.Port)
			if routes[at] == nil {
				routes[at] = f.Route
			}
		}
	}
	p.ports.Sync(routes)
}

// freshFailures are the healthCheckNodePorts that are not served, but for those that were told before.
func (p *publisher) freshFailures() map[proxy.ServiceName]string {
	failures := p.servers.Failures()
	fresh := maps.Clone(failures)
	maps.DeleteFunc(fresh, func(name proxy.ServiceName, text string) bool { return p.told[name] == text })
	p.told = failures
	return fresh
}

// localPorts tells how many NodePorts are listened for at the loopback address, and how often one could not be had.
func (p *publisher) localPorts() (listeners int, failures uint64) {
	if p.ports == nil {
		return 0, 0
	}
	return p.ports.Stats()
}

func (p *publisher) close() {
	p.servers.Close()
	if p.ports != nil {
		p.ports.Close()
	}
}

// follow lets a family's publisher follow the kernel, counts what it serves, and tells what it cannot.
func (l *loop) follow(ctx context.Context, p *proxier, changed bool) {
	if changed {
		p.publisher.sync(ctx)
		for name, why := range p.publisher.freshFailures() {
			l.warnNamed(name, reasonHealthCheck, why)
		}
	}
	listeners, failures := p.publisher.localPorts()
	p.metrics.SetLocalNodePorts(p.family, listeners, failures)
}
