package proxy

import (
	"context"
	"net/netip"
)

// Inspector looks at the rules of one family without changing anything. It has no connection that is kept, so that it can be
// used beside a Writer, in another process, and, for what needs no kernel, on a machine without one.
type Inspector interface {
	// Compare calls differs for everything in the kernel that is not as s wants it: for all that Reconcile would mend, one by
	// one, in no order. s must have been planned with the kernel's slots (Writer.Slots).
	Compare(ctx context.Context, s *State, differs func(Difference)) error
	// Planned follows packets through the rules that s asks for.
	Planned(s *State) Tracer
	// Live follows packets through the rules that the kernel has. It asks the kernel as far as a packet needs it.
	Live(ctx context.Context) (Tracer, error)
	// Blocks tells where chains of other programs end a packet's way, behind the DNAT.
	Blocks(ctx context.Context, p Passage) ([]Block, error)
}

// Difference is one thing of ours that is in the kernel and not as it should be. The texts are what `nft list ruleset` or
// iptables-save print, as far as that is of one line.
type Difference struct {
	// What it is: table, set, chain, rule, element, or jump (iptables: a rule of ours in a chain of the system).
	What string `json:"what"`
	// Where it is: table, or table and chain or set, like "ip sluice nat-prerouting" or "ip nat SLUICE-SERVICES".
	Where string `json:"where"`
	// Want is empty if it should not be there, Have if it is not there.
	Want string `json:"want,omitempty"`
	Have string `json:"have,omitempty"`
}

// String is the difference on one line.
func (d Difference) String() string {
	s := d.What + " " + d.Where
	switch {
	case d.Have == "":
		return s + ": missing: " + d.Want
	case d.Want == "":
		return s + ": not ours: " + d.Have
	}
	return s + ": should be " + d.Want + ", is " + d.Have
}

// Tracer follows the first packet of a connection through rules.
type Tracer interface {
	// Trace returns all that can become of the packet: more than one outcome where the rules choose at random.
	Trace(ctx context.Context, p Packet) (Trace, error)
}

// Packet is the first packet of a connection.
type Packet struct {
	// From is who sends it. An Addr that is not valid, and an Interface "?", are in no prefix and no set.
	From Source
	To   Frontend
	// OnNode tells whether an address is one of this node's.
	OnNode func(netip.Addr) bool
}

// Trace is what becomes of a packet.
type Trace struct {
	Outcomes []Outcome
}

// Outcome is one thing that can become of a packet.
type Outcome struct {
	Verdict Verdict
	// Endpoint is where it goes if it is Forwarded.
	Endpoint netip.AddrPort
	// Masquerade: the endpoint sees an address of this node in the place of the source.
	Masquerade bool
	// Affinity: the client was here before, and goes to the same endpoint.
	Affinity bool
	// Steps are the rules and elements that made it so, in the order in which the packet met them.
	Steps []Step
}

// Step is a rule or an element that a packet met.
type Step struct {
	// Where is the chain, and for an element the set, as in Difference.
	Where string `json:"where"`
	// Rule is the rule or the element as nft or iptables-save print it.
	Rule string `json:"rule"`
}

// Passage is the way of the first packet of a connection behind the DNAT: from an interface to an endpoint.
type Passage struct {
	// From is who sends it; its Interface is "?" where that is not known.
	From Source
	// Service is where the client sent it to.
	Service Frontend
	// Endpoint is where it goes, and Out the interface that leads there: "?" where that is not known.
	Endpoint netip.AddrPort
	Out      string
	// OnNode: the endpoint is this node itself.
	OnNode bool
}

// Block is a chain of another program that drops or rejects a packet.
type Block struct {
	// Chain is where that is, like "iptables filter FORWARD" or "nftables inet firewalld filter_FORWARD".
	Chain string `json:"chain"`
	// Rule does it: its text, or "policy drop".
	Rule string `json:"rule"`
	// Sure: no rule before it could let the packet through. Otherwise there are some that cannot be judged from here.
	Sure bool `json:"sure"`
}
