package proxy

import "net/netip"

// Passage is the way of the first packet of a connection: from where it comes in to an endpoint.
type Passage struct {
	// From is who sends it. An Addr that is not valid is not known.
	From Source
	// To is where the client sent it, and Endpoint where it goes.
	To       Frontend
	Endpoint netip.AddrPort
	// OnNode: the endpoint is an address of this node itself.
	OnNode bool
	// In and Out are the interfaces it passes. They are zero where they are not known. NoInterface stands for In where this node
	// sends it, and for Out where this node is the endpoint.
	In, Out Interface
	// Toward is the interface that leads to To. It is what chains see where this node sends a packet, also behind the DNAT: the
	// kernel looks for another way only then.
	Toward Interface
	// Mark is the packet's, as sluice set it.
	Mark uint32
}

// Place is where chains see a packet.
type Place uint8

// The places.
const (
	// Passing: it is forwarded, or leaves.
	Passing Place = iota
	// Sending: this node has made it (the hook output).
	Sending
	// Arriving: it is for this node (the hook input).
	Arriving
)

// At is how a passage looks at a place. What this node sends to itself goes out and comes in through the loopback interface.
func (p Passage) At(place Place) Passage {
	switch {
	case place == Arriving && p.From.Local:
		p.In, p.Out = p.Out, NoInterface
	case place == Arriving:
		p.Out = NoInterface
	case place == Sending:
		p.In, p.Out = NoInterface, p.Toward
	case p.From.Local:
		p.In = NoInterface
	}
	return p
}

// BeforeDNAT is how a passage looks before its destination is replaced. Where it goes out is not known then, unless this node
// sends it: it is not routed yet.
func (p Passage) BeforeDNAT() Passage {
	p.Endpoint, p.Out = netip.AddrPortFrom(p.To.Addr, p.To.Port), Interface{}
	if p.From.Local {
		p.Out = p.Toward
	}
	return p
}

// NoInterface says that there is none, as where this node itself sends or takes a packet.
var NoInterface = Interface{Name: "-", Index: -1}

// Interface is a network interface of this node.
type Interface struct {
	Name  string
	Index int
}

// Block is a chain of another program that ends a packet's way.
type Block struct {
	// Chain is where that is, like "iptables filter FORWARD" or "nftables inet firewalld filter_FORWARD".
	Chain string `json:"chain"`
	// Rule does it: its text, or "policy drop".
	Rule string `json:"rule"`
	// Sure: it ends every such packet's way. Otherwise that depends on what cannot be judged from here.
	Sure bool `json:"sure"`
}
