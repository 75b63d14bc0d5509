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
	// Mark is the packet's, as sluice set it.
	Mark uint32
}

// At is how a passage looks where it goes on, or, with input, where it comes in to this node: what this node sends to itself
// goes out and comes in through the loopback interface.
func (p Passage) At(input bool) Passage {
	switch {
	case input && p.From.Local:
		p.In, p.Out = p.Out, NoInterface
	case input:
		p.Out = NoInterface
	case p.From.Local:
		p.In = NoInterface
	}
	return p
}

// BeforeDNAT is how a passage looks before its destination is replaced. Where it goes out is not known then: it is not routed yet, or
// to the Service's address.
func (p Passage) BeforeDNAT() Passage {
	p.Endpoint, p.Out = netip.AddrPortFrom(p.To.Addr, p.To.Port), Interface{}
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
