package metrics

import (
	"github.com/VictoriaMetrics/metrics"

	"sluice/proxy"
)

// planTally is what one plan adds to the gauges.
type planTally struct{ services, endpoints, noLocalInternal, noLocalExternal int }

// tally counts a plan; nil counts for nothing.
func tally(p *proxy.ServicePlan) planTally {
	if p == nil {
		return planTally{}
	}
	t := planTally{services: 1}
	for i := 0; i < len(p.Frontends); {
		i += t.addPort(p.Frontends[i:])
	}
	return t
}

// addPort counts the port that the first frontends belong to, and returns how many they are.
func (t *planTally) addPort(from []proxy.FrontendRoute) (frontends int) {
	endpoints, internal, external := 0, 0, 0
	for _, f := range from {
		if f.Route.Port != from[0].Route.Port {
			break
		}
		frontends++
		none := func(p *proxy.Pool) bool { return len(p.Slots) == 0 && f.Route.WhenEmpty == proxy.Drop }
		endpoints = max(endpoints, len(f.Route.Pool.Slots))
		if f.Route.Kind == proxy.ClusterIP && none(f.Route.Pool) {
			internal = 1
		}
		if f.Route.LocalPool != nil {
			endpoints = max(endpoints, len(f.Route.LocalPool.Slots))
			if none(f.Route.LocalPool) {
				external = 1
			}
		}
	}
	t.endpoints += endpoints
	t.noLocalInternal += internal
	t.noLocalExternal += external
	return frontends
}

// planGauges are what all plans of a family come to. Frontends that several claim count once there.
type planGauges struct{ services, frontends, endpoints, noLocalInternal, noLocalExternal *metrics.Gauge }

func (g *planGauges) add(t planTally, times int) {
	if t == (planTally{}) {
		return
	}
	for _, one := range [...]struct {
		gauge *metrics.Gauge
		n     int
	}{{g.services, t.services}, {g.endpoints, t.endpoints}, {g.noLocalInternal, t.noLocalInternal}, {g.noLocalExternal, t.noLocalExternal}} {
		one.gauge.Add(float64(one.n * times))
	}
}
