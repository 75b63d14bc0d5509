package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/proxy"
	"sluice/test/lab"
)

// predict compares what State.Decide says of a line's packets with what they are to meet, which is then tried. It
// returns what is not as predicted.
func (r *run) predict(e *expectation) string {
	s, ok := r.subject.(*writerSubject)
	if !ok || e.probe.Protocol == lab.Ping {
		return ""
	}
	from := r.sourceOf(e.probe)
	d := s.state.Decide(from, proxy.Frontend{Addr: e.probe.To.Addr(), Port: e.probe.To.Port(), Protocol: e.probe.Protocol})
	switch d.Verdict {
	case proxy.Untouched:
		return "" // what it meets, no rule of ours decides
	case proxy.Rejected:
		if e.kind != lab.Refused && e.kind != lab.Unreachable {
			return fmt.Sprintf("predicted: rejected (%+v)", d)
		}
		return ""
	case proxy.Dropped:
		if e.kind != lab.Silence {
			return fmt.Sprintf("predicted: dropped (%+v)", d)
		}
		return ""
	}
	if e.kind != lab.Reached {
		return fmt.Sprintf("predicted: forwarded to %v", d.Endpoints)
	}
	var predicted []string
	for _, endpoint := range d.Endpoints {
		predicted = append(predicted, r.nameOf(endpoint))
		masquerade := s.state.Masquerades(&d, from, endpoint, slices.Contains(r.lab.Node.Addrs(r.family), endpoint.Addr()))
		if e.seen == "client" && masquerade || e.seen == "masqueraded" && !masquerade {
			return fmt.Sprintf("predicted: masqueraded %v to %v, not %q", masquerade, endpoint, e.seen)
		}
	}
	for _, endpoint := range e.endpoints {
		if !slices.Contains(predicted, endpoint) {
			return fmt.Sprintf("predicted: forwarded to %v, not to %s", predicted, endpoint)
		}
	}
	if len(e.endpoints) < len(predicted) && d.Route.Affinity == 0 {
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
