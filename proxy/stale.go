package proxy

import (
	"net/netip"
	"slices"
)

// Flow is one connection as conntrack knows it.
type Flow struct {
	Protocol Protocol
	// Dst is the destination that the client sent to (of the original tuple).
	Dst netip.AddrPort
	// ReplySrc is where answers come from (the source of the reply tuple): the
	// endpoint, or Dst itself if the flow's destination was never replaced.
	ReplySrc netip.AddrPort
	// Unreplied is true while no answer was seen (the status bit IPS_SEEN_REPLY is not set).
	Unreplied bool
}

// StaleFlow tells whether a flow has to be deleted, because conntrack would go on
// to send its packets to where nobody serves them. removed are frontends that
// went since flows were looked at last; nil if none did.
//
// Only UDP, and TCP that was never answered, can be stale: conntrack keeps such flows
// alive as long as the client tries. A TCP connection that was answered, and SCTP, is left to end by itself.
func (s *State) StaleFlow(f Flow, removed map[Frontend]struct{}) bool {
	if f.Protocol != UDP && (f.Protocol != TCP || !f.Unreplied) {
		return false
	}
	translated := f.ReplySrc != f.Dst
	to := Frontend{f.Dst.Addr(), f.Dst.Port(), f.Protocol}
	if route := s.routes[to]; route != nil {
		if route.serves(f.ReplySrc) {
			return false
		}
		// A flow from before the frontend had endpoints (or was known) passes by them until it is
		// deleted. While there are none, it harms nobody.
		return translated || route.hasSlots()
	}
	if !translated {
		return false
	}
	if _, gone := removed[to]; gone {
		return true
	}
	return slices.ContainsFunc(s.settings.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(f.Dst.Addr()) })
}

// serves tells whether flows to an endpoint may go on.
func (r *Route) serves(ep netip.AddrPort) bool {
	return slices.Contains(r.Pool.slots(), ep) ||
		slices.Contains(r.LocalPool.slots(), ep) ||
		slices.Contains(r.Others, ep)
}

// NeedsFlowCheck tells whether d may have made flows stale: a UDP or TCP frontend
// went or lost an endpoint, or a UDP frontend got its first one.
func (d *Delta) NeedsFlowCheck() bool {
	for i := range d.Frontends {
		c := &d.Frontends[i]
		if c.Protocol == SCTP {
			continue
		}
		if c.New == nil || c.Old != nil && c.Old.lostEndpoint(c.New) {
			return true
		}
		if c.Protocol == UDP && c.New.hasSlots() && !(c.Old != nil && c.Old.hasSlots()) {
			return true
		}
	}
	return false
}

// RemovedFrontends returns the frontends that go with d, for StaleFlow; nil if none goes.
func (d *Delta) RemovedFrontends() map[Frontend]struct{} {
	var gone map[Frontend]struct{}
	for i := range d.Frontends {
		if c := &d.Frontends[i]; c.New == nil {
			if gone == nil {
				gone = map[Frontend]struct{}{}
			}
			gone[c.Frontend] = struct{}{}
		}
	}
	return gone
}

func (r *Route) hasSlots() bool { return len(r.Pool.slots())+len(r.LocalPool.slots()) > 0 }

// lostEndpoint tells whether r had an endpoint that new has not.
func (r *Route) lostEndpoint(new *Route) bool {
	lost := func(old, now []netip.AddrPort) bool {
		for i, ep := range old {
			// Most endpoints stay in their slots: to look there first makes this linear.
			if (i >= len(now) || now[i] != ep) && !new.serves(ep) {
				return true
			}
		}
		return false
	}
	return lost(r.Pool.slots(), new.Pool.slots()) ||
		lost(r.LocalPool.slots(), new.LocalPool.slots()) ||
		lost(r.Others, new.Others)
}
