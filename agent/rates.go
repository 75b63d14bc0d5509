package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/agent/counters"
	"sluice/agent/source"
	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
)

const (
	// ratesKept is how long what was read for Counts is kept after somebody asked for it.
	ratesKept = 2 * time.Minute
	// countAtOnce is for how many Services endpoints are counted before the loop sees to changes again.
	countAtOnce = 64
)

// rates is what the loop keeps for Counts while somebody asks for it.
type rates struct {
	meter *counters.Meter // nil: the mode has no counters
	kept  time.Duration
	idle  *time.Timer
	// endpoints are those of each Service; planning forgets them.
	endpoints map[proxy.ServiceName][]status.ReadyCount
}

// openRates is for after the mode is chosen and the families are open.
func (l *loop) openRates() {
	l.rates.kept = ratesKept
	if l.mode != proxy.ModeNFTables {
		return
	}
	var families []proxy.Family
	for _, p := range l.proxiers {
		families = append(families, p.family)
	}
	l.rates.meter = counters.NewMeter(families, func(f proxy.Family, fn func(nft.Counter)) error {
		return nft.ReadCounters(nft.Options{Family: f}, fn)
	}, time.Now)
}

// Counts implements status.Provider. The loop goes on while the kernel is read.
func (l *loop) Counts(ctx context.Context) (status.Counts, error) {
	c := status.Counts{Node: l.cfg.NodeName, Mode: l.mode}
	var sums map[proxy.ServiceName]counters.Sum
	if l.rates.meter == nil {
		c.NotCounted = "The kernel counts no connections of a Service in the mode " + l.mode + "."
	} else if r, err := l.rates.meter.Read(); err != nil {
		c.NotCounted = fmt.Sprintf("The kernel's counters cannot be read: %v.", err)
	} else {
		c.At, sums = r.At, r.Sums
	}
	var missing []proxy.ServiceName
	err := l.do(ctx, func() { c.Items, missing = l.counts(sums, countAtOnce) })
	if len(missing) == 0 || err != nil {
		return c, err
	}
	for some := range slices.Chunk(missing, countAtOnce) {
		if err := l.do(ctx, func() { l.countReady(some) }); err != nil {
			return c, err
		}
	}
	err = l.do(ctx, func() { c.Items, _ = l.counts(sums, 0) }) // what changed meanwhile is little
	return c, err
}

// keepRates keeps what was read for a while longer.
func (l *loop) keepRates() {
	if l.rates.endpoints == nil {
		l.rates.endpoints = map[proxy.ServiceName][]status.ReadyCount{}
	}
	if l.rates.idle != nil {
		l.rates.idle.Reset(l.rates.kept)
		return
	}
	l.rates.idle = time.AfterFunc(l.rates.kept, func() {
		_ = l.do(context.Background(), func() { // no matter if the loop has ended
			l.rates.endpoints = nil
			if l.rates.meter != nil {
				l.rates.meter.Forget()
			}
		})
	})
}

// counts lists all Services. If more than limit of them have endpoints that are not counted yet, it returns those alone; 0 is no limit.
func (l *loop) counts(sums map[proxy.ServiceName]counters.Sum, limit int) (items []status.ServiceCounts, missing []proxy.ServiceName) {
	l.keepRates()
	served := map[proxy.ServiceName]bool{}
	for _, p := range l.proxiers {
		for plan := range p.state.Plans() {
			served[plan.Name] = true
			if _, known := l.rates.endpoints[plan.Name]; !known {
				missing = append(missing, plan.Name)
			}
		}
	}
	if limit > 0 && len(missing) > limit {
		return nil, missing
	}
	l.countReady(missing)
	items = make([]status.ServiceCounts, 0, len(served))
	for _, name := range slices.SortedFunc(maps.Keys(served), proxy.ServiceName.Compare) {
		sum := sums[name]
		items = append(items, status.ServiceCounts{
			Namespace: name.Namespace, Name: name.Name, Connections: sum.Connections, FirstPacketBytes: sum.FirstBytes, Endpoints: l.rates.endpoints[name],
		})
	}
	return items, nil
}

// countReady counts the endpoints of Services, where that was not done yet.
func (l *loop) countReady(names []proxy.ServiceName) {
	l.keepRates()
	for _, name := range names {
		if _, known := l.rates.endpoints[name]; known {
			continue
		}
		counts := []status.ReadyCount{}
		if s, found := l.servedService(source.Name(name)); found {
			for _, c := range status.NewService(s.service, status.NewEndpoints(s.service, s.slices, l.cfg.NodeName, nil, s.plans...), s.plans...).Endpoints {
				counts = append(counts, status.ReadyCount{Family: c.Family, Ready: c.Ready, Total: c.Total})
			}
		}
		l.rates.endpoints[name] = counts
	}
}

// ServicesNamed lists the Services of these names that are served, as Services does.
func (l *loop) ServicesNamed(ctx context.Context, names []proxy.ServiceName) (list []status.Service, err error) {
	err = l.do(ctx, func() {
		var services []servedService
		for _, name := range names {
			if s, found := l.servedService(source.Name(name)); found {
				services = append(services, s)
			}
		}
		list = l.describe(services)
	})
	return list, err
}
