package status

import (
	"time"

	"sluice/proxy"
)

// Counts is what `sluice top` asks for: what the kernel counted for each Service. The counters are read when this is asked for, once for
// all who ask in the same second.
type Counts struct {
	// At is when they were read; zero if they were not.
	At time.Time `json:"at,omitzero"`
	// NotCounted says why there are no counters, in a whole sentence; empty if there are.
	NotCounted string `json:"notCounted,omitempty"`
	Node       string `json:"node"`
	Mode       string `json:"mode"`
	// Items has all Services that are served, by namespace and name.
	Items []ServiceCounts `json:"items"`
}

// ServiceCounts are the counters of one Service, at all its addresses.
type ServiceCounts struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Connections are the new ones; for UDP flows. They begin at some time, that of the rules or later: what matters is the difference
	// of two readings. While someone asks every other minute it does not go back, unless the agent ends.
	Connections uint64 `json:"connections"`
	// FirstPacketBytes are the bytes of each connection's first packet. The others pass no rule that counts.
	FirstPacketBytes uint64 `json:"firstPacketBytes"`
	// Endpoints counts the endpoints by family, in the order of the Service's ClusterIPs.
	Endpoints []ReadyCount `json:"endpoints"`
}

// ReadyCount counts a Service's endpoints in one family, each address once.
type ReadyCount struct {
	// Family is 4 or 6.
	Family proxy.Family `json:"family"`
	Ready  int          `json:"ready"`
	Total  int          `json:"total"`
}

// Rates is how many new connections a second each Service had between two readings.
type Rates struct {
	// Over is the time between them; 0 if there is nothing to compare.
	Over   time.Duration
	before map[proxy.ServiceName]uint64
}

// NewRates takes in the earlier reading. Against one that has no counters no Service has a rate.
func NewRates(earlier, later *Counts) Rates {
	if earlier.At.IsZero() || later.At.IsZero() || !later.At.After(earlier.At) {
		return Rates{}
	}
	r := Rates{Over: later.At.Sub(earlier.At), before: make(map[proxy.ServiceName]uint64, len(earlier.Items))}
	for i := range earlier.Items {
		s := &earlier.Items[i]
		r.before[proxy.ServiceName{Namespace: s.Namespace, Name: s.Name}] = s.Connections
	}
	return r
}

// Of is the rate of a Service of the later reading, in connections a second. ok is false if it is not known: there is no earlier
// reading, or the agent has begun to count anew.
func (r Rates) Of(s *ServiceCounts) (rate float64, ok bool) {
	if r.Over <= 0 {
		return 0, false
	}
	before := r.before[proxy.ServiceName{Namespace: s.Namespace, Name: s.Name}] // 0 for one that is new
	if s.Connections < before {
		return 0, false
	}
	return float64(s.Connections-before) / r.Over.Seconds(), true
}

// Ready is "ready/total", once if all families agree, else for each family.
func (s *ServiceCounts) Ready() string {
	return perFamily(s.Endpoints, func(c *ReadyCount) (int, int) { return c.Ready, c.Total })
}
