// Package proxy decides where the packets of Services go. It turns Services,
// EndpointSlices and facts about this node into a desired state, keeps that
// state, and tells what a change of the objects changes in it.
//
// The package is pure: it reads no file, no kernel and no clock, and starts no
// goroutine. The writers (proxy/nft, proxy/iptables) bring its Delta into a kernel.
package proxy
