// Package counters adds up what the kernel counts at the addresses of Services.
package counters

import (
	"bytes"
	"sync"
	"time"

	"sluice/proxy"
	"sluice/proxy/nft"
)

const (
	// share is for how long one look at the kernel answers all who ask. It is a little less than the second in which
	// `sluice top` asks again.
	share = 900 * time.Millisecond
	// keep is how long a frontend is remembered that is not in the kernel: its Service may be without endpoints
	// for a while, and goes on from where it was.
	keep = 10 * time.Minute
)

// Sum is what was counted for one Service, at all its addresses.
type Sum struct {
	// Connections are new ones; for UDP and SCTP flows that connection tracking takes for new.
	Connections uint64
	// FirstBytes are the bytes of the first packet of each, all that passes a Service's address.
	FirstBytes uint64
}

// Reading is what one look at the kernel says.
type Reading struct {
	At   time.Time
	Sums map[proxy.ServiceName]Sum // not to be changed
}

// ReadFunc calls a function for every counter of a family, as nft.ReadCounters does.
type ReadFunc func(proxy.Family, func(nft.Counter)) error

// Meter reads the kernel's counters when it is asked, and at most about once a second. From one reading to the next no sum
// goes back, although the kernel begins at 0 again when a frontend was without endpoints. The first
// reading says what the kernel has, and so does the first after Forget.
type Meter struct {
	families []proxy.Family
	read     ReadFunc
	now      func() time.Time

	mu        sync.Mutex
	last      Reading
	frontends map[proxy.Frontend]*counted
	sums      map[proxy.ServiceName]*Sum
}

// counted is what a frontend's counter said last.
type counted struct {
	service        []byte // NAMESPACE/NAME, as the kernel has it
	sum            *Sum
	packets, bytes uint64
	seen           time.Time
}

// NewMeter returns a Meter that remembers nothing.
func NewMeter(families []proxy.Family, read ReadFunc, now func() time.Time) *Meter {
	return &Meter{families: families, read: read, now: now}
}

// Read looks at the kernel, unless that was done just before. After an error the next reading goes on from the last good one.
func (m *Meter) Read() (Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if !m.last.At.IsZero() && now.Sub(m.last.At) < share {
		return m.last, nil
	}
	if m.frontends == nil {
		m.frontends, m.sums = map[proxy.Frontend]*counted{}, map[proxy.ServiceName]*Sum{}
	}
	for _, f := range m.families {
		if err := m.read(f, func(n nft.Counter) { m.count(n, now) }); err != nil {
			return Reading{}, err
		}
	}
	used := make(map[*Sum]bool, len(m.sums))
	for f, one := range m.frontends {
		if now.Sub(one.seen) > keep {
			delete(m.frontends, f)
			continue
		}
		used[one.sum] = true
	}
	m.last = Reading{At: now, Sums: make(map[proxy.ServiceName]Sum, len(m.sums))}
	for name, sum := range m.sums {
		if !used[sum] {
			delete(m.sums, name)
			continue
		}
		m.last.Sums[name] = *sum
	}
	return m.last, nil
}

// Forget gives the memory back that readings need.
func (m *Meter) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.frontends, m.sums = Reading{}, nil, nil
}

// count takes in one counter. To be told of it twice does no harm.
func (m *Meter) count(n nft.Counter, now time.Time) {
	service, _, _ := bytes.Cut(n.ServicePort, []byte{':'})
	one := m.frontends[n.Frontend]
	if one == nil || !bytes.Equal(one.service, service) { // it is new, or another Service's now
		namespace, name, ok := bytes.Cut(service, []byte{'/'})
		if !ok {
			return // nothing of the agent's
		}
		of := proxy.ServiceName{Namespace: string(namespace), Name: string(name)}
		if m.sums[of] == nil {
			m.sums[of] = &Sum{}
		}
		one = &counted{service: bytes.Clone(service), sum: m.sums[of]}
		m.frontends[n.Frontend] = one
	}
	one.sum.Connections += Since(one.packets, n.Packets)
	one.sum.FirstBytes += Since(one.bytes, n.Bytes)
	one.packets, one.bytes, one.seen = n.Packets, n.Bytes, now
}

// Since is what a counter of the kernel counted since it was at was. One that is below began at 0 again.
func Since(was, now uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}
