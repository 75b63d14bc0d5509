package proxy

import (
	"context"
	"net/netip"
)

// Tracer follows the first packet of a connection through the rules of one family, rule by rule: those that a State asks for, or
// those that the kernel has. What State.Decide says in the words of Services, a Tracer finds out in those of nft or iptables.
// It changes nothing.
type Tracer interface {
	// Trace returns all that can become of the packet: more than one outcome where the rules choose at random, in
	// their order, MaxOutcomes at most. It is an error if a rule cannot be followed, and what it is about.
	Trace(ctx context.Context, p Packet) ([]Outcome, error)
}

// MaxOutcomes bounds the memory that the outcomes of one packet take, at some 2 KB each.
const MaxOutcomes = 1000

// Packet is the first packet of a connection.
type Packet struct {
	// From is who sends it. An Addr that is not valid, and an Interface "?", are in no prefix and no set.
	From Source
	To   Frontend
	// OnNode tells whether an address is one of this node's.
	OnNode func(netip.Addr) bool
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

// Step is a rule that a packet met and that did something to it, or the element that was looked up in it.
type Step struct {
	// Where is the chain, and for an element the set, as in Difference: "ip sluice nat-prerouting", "ip nat SLUICE-SERVICES".
	Where string `json:"where"`
	// Rule is the rule or the element as nft or iptables-save print it.
	Rule string `json:"rule"`
}

// Outcomes runs a packet through rules until all random choices were made in every way, or MaxOutcomes came of it.
func Outcomes(ctx context.Context, run func(*Choices) (Outcome, error)) (all []Outcome, err error) {
	for choices := (Choices{}); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o, err := run(&choices)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
		if len(all) == MaxOutcomes || !choices.turn() {
			return all, nil
		}
	}
}

// Choices are the random numbers that one run of a packet through rules met.
type Choices struct {
	list []struct{ is, of uint32 }
	next int
}

// Draw returns a number below of.
func (c *Choices) Draw(of uint32) uint32 {
	if c.next == len(c.list) {
		c.list = append(c.list, struct{ is, of uint32 }{0, of})
	}
	c.next++
	return c.list[c.next-1].is
}

// turn begins the next run, and tells whether there is one.
func (c *Choices) turn() bool {
	c.next = 0
	for i := len(c.list) - 1; i >= 0; i-- {
		if c.list[i].is++; c.list[i].is < c.list[i].of {
			c.list = c.list[:i+1]
			return true
		}
	}
	return false
}
