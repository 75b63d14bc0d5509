package dataplane

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sluice/proxy"
	"sluice/test/lab"
)

// prediction is what is said to become of a line's packets.
type prediction struct {
	by      string
	verdict proxy.Verdict
	// endpoints tells of each whether it is masqueraded.
	endpoints map[netip.AddrPort]bool
	// affinity: some clients have an affinity, so that a line may see fewer endpoints.
	affinity bool
}

// predictor knows what is planned and what the kernel has, at the time of some probes.
type predictor struct {
	*run
	state   *proxy.State // nil: the subject is none of this module's
	tracers map[string]proxy.Tracer
	closers []func()
}

func (r *run) openPredictor() (*predictor, error) {
	p := &predictor{run: r, tracers: map[string]proxy.Tracer{}}
	s, ok := r.subject.(*writerSubject)
	if !ok {
		return p, nil
	}
	p.state = s.state
	for by, open := range s.tracers {
		t, closeTracer, err := open(r.ctx, s.state)
		if err != nil {
			return p, fmt.Errorf("%s: %w", by, err)
		}
		p.tracers[by] = t
		p.closers = append(p.closers, closeTracer)
	}
	return p, nil
}

func (p *predictor) close() {
	for _, c := range p.closers {
		c()
	}
}

// predict compares what State.Decide says of a line's packets, and what the rules say that are planned and those that the
// kernel has, with each other and with what the packets are to meet, which was tried. It returns what is not as predicted.
func (r *predictor) predict(e *expectation) string {
	if r.state == nil || e.probe.Protocol == lab.Ping {
		return ""
	}
	packet := proxy.Packet{
		From:   r.sourceOf(e.probe),
		To:     proxy.Frontend{Addr: e.probe.To.Addr(), Port: e.probe.To.Port(), Protocol: e.probe.Protocol},
		OnNode: func(a netip.Addr) bool { return slices.Contains(r.lab.Node.Addrs(r.family), a) },
	}
	decided := decidedOf(r.state, packet)
	var problems []string
	for by, t := range r.tracers {
		p, err := traced(r.ctx, by, t, packet)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s: %v", by, err))
		case !p.agrees(&decided):
			problems = append(problems, fmt.Sprintf("%v\n\tbut %v", p, decided))
		}
	}
	return strings.Join(append(problems, r.judgePrediction(e, &decided)), "\n\t")
}

// decidedOf is what State.Decide says.
func decidedOf(s *proxy.State, packet proxy.Packet) prediction {
	d := s.Decide(packet.From, packet.To)
	p := prediction{by: "decided", verdict: d.Verdict, endpoints: map[netip.AddrPort]bool{}, affinity: d.Route != nil && d.Route.Affinity != 0}
	for _, endpoint := range d.Endpoints {
		p.endpoints[endpoint] = s.Masquerades(&d, packet.From, endpoint, packet.OnNode(endpoint.Addr()))
	}
	return p
}

// traced is what the rules say.
func traced(ctx context.Context, by string, t proxy.Tracer, packet proxy.Packet) (prediction, error) {
	p := prediction{by: by, endpoints: map[netip.AddrPort]bool{}}
	outcomes, err := t.Trace(ctx, packet)
	for i, o := range outcomes {
		if i > 0 && o.Verdict != p.verdict {
			return p, fmt.Errorf("the verdict is %v and %v: %+v", p.verdict, o.Verdict, outcomes)
		}
		if o.Verdict != proxy.Untouched && len(o.Steps) == 0 {
			return p, fmt.Errorf("%v, and no rule does it", o.Verdict)
		}
		p.verdict, p.affinity = o.Verdict, p.affinity || o.Affinity
		if o.Verdict == proxy.Forwarded {
			p.endpoints[o.Endpoint] = o.Masquerade
		}
	}
	return p, err
}

// agrees tells whether the rules do what was decided. A client that the kernel knows goes to its own endpoint only.
func (p *prediction) agrees(decided *prediction) bool {
	if p.affinity && !decided.affinity || p.verdict != decided.verdict {
		return false
	}
	if !p.affinity {
		return maps.Equal(p.endpoints, decided.endpoints)
	}
	for endpoint, masquerade := range p.endpoints {
		if decidedSo, there := decided.endpoints[endpoint]; !there || decidedSo != masquerade {
			return false
		}
	}
	return true
}

func (p prediction) String() string {
	return fmt.Sprintf("%s: %v to %v (masqueraded), affinity %v", p.by, p.verdict, p.endpoints, p.affinity)
}

// judgePrediction compares a prediction with what the packets are to meet.
func (r *run) judgePrediction(e *expectation, p *prediction) string {
	want := map[proxy.Verdict][]lab.Kind{
		proxy.Rejected: {lab.Refused, lab.Unreachable}, proxy.Dropped: {lab.Silence}, proxy.Forwarded: {lab.Reached},
	}[p.verdict]
	if p.verdict == proxy.Untouched {
		return "" // what it meets, no rule of ours decides
	}
	if !slices.Contains(want, e.kind) {
		return fmt.Sprintf("predicted: %v", p)
	}
	if p.verdict != proxy.Forwarded {
		return ""
	}
	var predicted []string
	for endpoint, masquerade := range p.endpoints {
		predicted = append(predicted, r.nameOf(endpoint))
		if e.seen == "client" && masquerade || e.seen == "masqueraded" && !masquerade {
			return fmt.Sprintf("predicted: masqueraded %v to %v, not %q", masquerade, endpoint, e.seen)
		}
	}
	for _, endpoint := range e.endpoints {
		if !slices.Contains(predicted, endpoint) {
			return fmt.Sprintf("predicted: forwarded to %v, not to %s", predicted, endpoint)
		}
	}
	if len(e.endpoints) < len(predicted) && !p.affinity {
		return fmt.Sprintf("predicted: forwarded to %v, to %v only", predicted, e.endpoints)
	}
	return ""
}

// sourceOf is a probe's sender, as the node's rules see it.
func (r *run) sourceOf(p lab.Probe) proxy.Source {
	s := proxy.Source{Addr: p.Source, Local: p.From == r.lab.Node, Interface: "eth0"}
	if !s.Addr.IsValid() {
		s.Addr = p.From.Addr(r.family)
	}
	switch {
	case s.Local:
		s.Interface = ""
	case slices.Contains(r.lab.Pods, p.From):
		s.Interface = lab.CNIBridge
	}
	return s
}

// nameOf is an endpoint as lines name it.
func (r *run) nameOf(endpoint netip.AddrPort) string {
	for name, addr := range r.names {
		if addr == endpoint.Addr() && !strings.Contains(name, "-") {
			return fmt.Sprintf("%s:%d", name, endpoint.Port())
		}
	}
	return endpoint.String()
}
