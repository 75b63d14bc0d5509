package proxy

import "net/netip"

// Passage is the way of the first packet of a connection behind the DNAT: from where it comes in to an endpoint.
type Passage struct {
	// From is who sends it. An Addr that is not valid is not known.
	From Source
	// To is where the client sent it, and Endpoint where it goes.
	To       Frontend
	Endpoint netip.AddrPort
	// OnNode: the endpoint is an address of this node itself.
	OnNode bool
	// In and Out are the interfaces it passes. They are zero where they are not known, and In where this node sends it.
	In, Out Interface
	// Mark is the packet's, as sluice set it.
	Mark uint32
}

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
