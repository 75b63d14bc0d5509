package metrics

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"sluice/agent/counters"
	"sluice/proxy"
	"sluice/proxy/nft"
)

const (
	// readInterval is the least time between two looks at the kernel's counters, however often metrics are asked for.
	readInterval = 5 * time.Second
	// maxPorts is how many ports of one Service have series.
	maxPorts = 50
	// keepSeries is how long the series of a Service stays that has no frontend in the kernel: it
	// may be without endpoints for a while, and goes on from where it was.
	keepSeries = 10 * time.Minute
)

// connections adds up the new connections of Services. The kernel counts from 0 again
// when a frontend was without endpoints for a time; what it had counted is kept here. What
// it counted between the last look and such a time is lost.
type connections struct {
	families []proxy.Family
	read     func(proxy.Family, func(nft.Counter)) error
	log      *slog.Logger
	max      int // Services

	mu     sync.Mutex
	looked time.Time
	failed string // the error that was logged last
	// begun are the families that were read once. What the kernel had counted before is not this
	// process' to tell: a sum that begins below where an earlier agent's ended would be taken for new connections.
	begun     map[proxy.Family]bool
	frontends map[proxy.Frontend]counted
	ports     map[proxy.ServicePortName]*series
	services  map[proxy.ServiceName]int // how many ports have series
	order     []*series
	// leftOut are the frontends that have no series as there are too many.
	leftOut int
}

// counted is what a frontend's counter said last.
type counted struct {
	packets uint64
	of      *series
}

// series is one Service port.
type series struct {
	name   proxy.ServicePortName
	text   string // the name as the kernel has it
	labels string
	total  uint64
	seen   time.Time
}

// addConnections adds the metrics that are read from the kernel.
func (r *Recorder) addConnections() {
	if r.o.Services <= 0 {
		return
	}
	c := &connections{
		families: r.o.Families, read: r.o.ReadCounters, log: r.o.Log, max: r.o.Services, begun: map[proxy.Family]bool{},
		frontends: map[proxy.Frontend]counted{}, ports: map[proxy.ServicePortName]*series{}, services: map[proxy.ServiceName]int{},
	}
	r.registry.collected("sluice_service_new_connections_total", Counter,
		"New connections (for UDP: flows) to a Service port at all its addresses, for --metrics-services Services at most; those between the last scrape and a time without endpoints are missing",
		func(p *page) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.look(r.o.Now())
			for _, s := range c.order {
				p.line(s.labels, float64(s.total))
			}
		}, connectionLabels...)
	r.registry.collected("sluice_service_frontends_left_out", Gauge, "Addresses of Services that sluice_service_new_connections_total leaves out, as they are too many",
		func(p *page) {
			c.mu.Lock()
			defer c.mu.Unlock()
			p.value(float64(c.leftOut))
		})
}

var connectionLabels = []string{"namespace", "service", "port", "protocol"}

// look reads the counters, unless that was done just before.
func (c *connections) look(now time.Time) {
	if !c.looked.IsZero() && now.Sub(c.looked) < readInterval {
		return
	}
	c.looked = now
	c.leftOut = 0
	for _, f := range c.families {
		if err := c.read(f, func(n nft.Counter) { c.count(n, c.begun[f], now) }); err != nil {
			if c.failed != err.Error() {
				c.log.Warn("new connections of Services are not counted; tried again when metrics are asked for", "error", err)
				c.failed = err.Error()
			}
			return // and nothing is forgotten
		}
		c.begun[f] = true
	}
	c.failed = ""
	c.forget(now)
}

// count takes in one counter; begun tells whether one that is seen for the first time began
// at 0 since the last look. To be told of a counter twice does no harm.
func (c *connections) count(n nft.Counter, begun bool, now time.Time) {
	was, known := c.frontends[n.Frontend]
	if !known || was.of.text != string(n.ServicePort) {
		s := c.seriesOf(n)
		if s == nil {
			c.leftOut++
			return
		}
		was = counted{of: s}
		if !begun {
			was.packets = n.Packets
		}
	}
	was.of.total += counters.Since(was.packets, n.Packets)
	was.of.seen = now
	c.frontends[n.Frontend] = counted{n.Packets, was.of}
}

// seriesOf finds or makes the series of a frontend; nil if there is no place for it.
func (c *connections) seriesOf(n nft.Counter) *series {
	namespace, rest, ok := strings.Cut(string(n.ServicePort), "/")
	if !ok {
		return nil
	}
	name, port, _ := strings.Cut(rest, ":")
	key := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: namespace, Name: name}, Port: port, Protocol: n.Frontend.Protocol}
	if s := c.ports[key]; s != nil {
		return s
	}
	has, known := c.services[key.ServiceName]
	if !known && len(c.services) >= c.max || has >= maxPorts {
		return nil
	}
	s := &series{name: key, text: string(n.ServicePort), labels: labelText(connectionLabels, []string{namespace, name, port, key.Protocol.String()})}
	c.ports[key] = s
	c.services[key.ServiceName]++
	c.order = append(c.order, s)
	return s
}

// forget drops what has not been in the kernel for long.
func (c *connections) forget(now time.Time) {
	gone := func(s *series) bool { return now.Sub(s.seen) > keepSeries }
	kept := c.order[:0]
	for _, s := range c.order {
		if !gone(s) {
			kept = append(kept, s)
			continue
		}
		delete(c.ports, s.name)
		if c.services[s.name.ServiceName]--; c.services[s.name.ServiceName] == 0 {
			delete(c.services, s.name.ServiceName)
		}
	}
	clear(c.order[len(kept):])
	c.order = kept
	for f, one := range c.frontends {
		if gone(one.of) {
			delete(c.frontends, f)
		}
	}
}
