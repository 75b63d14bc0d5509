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

// Ready is "ready/total", once if all families agree, else for each family.
func (s *ServiceCounts) Ready() string {
	return perFamily(s.Endpoints, func(c *ReadyCount) (int, int) { return c.Ready, c.Total })
}
