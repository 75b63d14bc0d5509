package explain

import (
	"net/netip"
	"slices"

	"sluice/agent/status"
	"sluice/proxy"
)

// Answer is a path, and the ways that its packets take behind the DNAT: one for each endpoint that they are forwarded to.
type Answer struct {
	status.Path
	Passages []proxy.Passage
}

// maxPassages is how many ways of one path are judged: what a firewall does to one endpoint it does to its like.
const maxPassages = 100

// passages are the ways of packets that are forwarded.
func (v *View) passages(p *status.Path, packet proxy.Packet) (list []proxy.Passage) {
	if p.Verdict != proxy.Forwarded.String() {
		return nil
	}
	n := len(p.Endpoints)
	for i := range min(n, maxPassages) { // spread over all: those of one node have addresses near each other
		e := p.Endpoints[i*n/min(n, maxPassages)].Address
		list = append(list, proxy.Passage{From: packet.From, To: packet.To, Endpoint: e, OnNode: v.onNode(e.Addr())})
	}
	return list
}

// Block adds to answers which chains of other programs end the ways. An error of judge is told in their place.
func Block(answers []Answer, judge func(proxy.Passage) ([]proxy.Block, error)) []status.Path {
	paths := make([]status.Path, len(answers))
	for i, a := range answers {
		paths[i] = a.Path
		for _, way := range a.Passages {
			blocks, err := judge(way)
			if err != nil {
				paths[i].BlockError = err.Error()
				break
			}
			for _, b := range blocks {
				paths[i].Blocked = addBlock(paths[i].Blocked, b, way.Endpoint)
			}
		}
		for j := range paths[i].Blocked {
			if b := &paths[i].Blocked[j]; len(b.To) == len(a.Passages) {
				b.To = nil
			}
		}
	}
	return paths
}

func addBlock(list []status.PathBlock, b proxy.Block, endpoint netip.AddrPort) []status.PathBlock {
	i := slices.IndexFunc(list, func(known status.PathBlock) bool { return known.Block == b })
	if i < 0 {
		i, list = len(list), append(list, status.PathBlock{Block: b})
	}
	list[i].To = append(list[i].To, endpoint)
	return list
}
