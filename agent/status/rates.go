package status

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"sluice/proxy"
)

// Rates is what two readings of the counters say together.
type Rates struct {
	// Over is the time between them; 0 if there is nothing to compare.
	Over time.Duration
	// Sum is the new connections a second of all Services; below 0 if it is not known.
	Sum      float64
	Services []ServiceRate
}

// ServiceRate is one Service of the later reading.
type ServiceRate struct {
	*ServiceCounts
	// Counted is false where there are no counters.
	Counted bool
	// Rate is the new connections a second. It is below 0 if it is not known: there is no earlier reading, or the agent has
	// begun to count anew.
	Rate float64
	// ReadyEndpoints and AllEndpoints count the endpoints of both families.
	ReadyEndpoints, AllEndpoints int
}

// NewRates compares two readings; the earlier may be empty. namespace keeps Services of others out; empty is all. They stay in
// the order of the reading, by namespace and name.
func NewRates(earlier, later *Counts, namespace string) Rates {
	r := Rates{Sum: -1, Services: make([]ServiceRate, 0, len(later.Items))}
	before := map[proxy.ServiceName]uint64{}
	if !earlier.At.IsZero() && later.At.After(earlier.At) {
		r.Over, r.Sum = later.At.Sub(earlier.At), 0
		for i := range earlier.Items {
			before[earlier.Items[i].serviceName()] = earlier.Items[i].Connections
		}
	}
	for i := range later.Items {
		s := ServiceRate{ServiceCounts: &later.Items[i], Counted: !later.At.IsZero(), Rate: -1}
		if namespace != "" && s.Namespace != namespace {
			continue
		}
		if was := before[s.serviceName()]; r.Over > 0 && s.Connections >= was { // 0 for one that is new
			s.Rate = float64(s.Connections-was) / r.Over.Seconds()
			r.Sum += s.Rate
		}
		for _, c := range s.Endpoints {
			s.ReadyEndpoints, s.AllEndpoints = s.ReadyEndpoints+c.Ready, s.AllEndpoints+c.Total
		}
		r.Services = append(r.Services, s)
	}
	return r
}

func (s *ServiceCounts) serviceName() proxy.ServiceName {
	return proxy.ServiceName{Namespace: s.Namespace, Name: s.Name}
}

// Key is what Services are sorted by.
type Key string

// The keys.
const (
	ByRate      Key = "rate"
	ByTotal     Key = "total"
	ByName      Key = "name"
	ByEndpoints Key = "endpoints"
	ByBytes     Key = "bytes"
)

// Keys are all of them.
var Keys = []Key{ByRate, ByTotal, ByName, ByEndpoints, ByBytes}

// Sort orders the Services: the greatest first, but names by the alphabet, and endpoints with the fewest ready ones first.
func (r *Rates) Sort(by Key) {
	slices.SortFunc(r.Services, func(a, b ServiceRate) int {
		order := 0
		switch by {
		case ByTotal:
			order = cmp.Compare(b.Connections, a.Connections)
		case ByBytes:
			order = cmp.Compare(b.FirstPacketBytes, a.FirstPacketBytes)
		case ByEndpoints:
			order = cmp.Or(cmp.Compare(a.ReadyEndpoints, b.ReadyEndpoints), cmp.Compare(b.AllEndpoints, a.AllEndpoints))
		case ByRate:
			order = cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Connections, a.Connections))
		}
		return cmp.Or(order, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Unknown stands in the place of a number.
const Unknown = "-"

// RateText is a rate with one digit behind the point while that says something.
func RateText(rate float64) string {
	switch {
	case rate < 0:
		return Unknown
	case rate > 0 && rate < 99.95:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

// Total is Connections as text.
func (s *ServiceRate) Total() string {
	if !s.Counted {
		return Unknown
	}
	return strconv.FormatUint(s.Connections, 10)
}
