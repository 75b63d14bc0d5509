package explain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sluice/agent/status"
	"sluice/proxy"
)

// View is what is known of one family.
type View struct {
	Node  *proxy.Node
	State *proxy.State
	Rules Rules
}

// Lookup returns what is known of a Service that has a plan.
type Lookup func(proxy.ServiceName) (status.Service, []status.Endpoint)

// maxAnswers bounds the memory that answers take, at some 4 KB each: a Service can have tens of thousands of ports.
const maxAnswers = 256

// Explain answers a question. What is wrong with the question is a *status.QuestionError.
func Explain(ctx context.Context, q status.Question, views []View, lookup Lookup) ([]Answer, error) {
	if err := q.Check(); err != nil {
		return nil, &status.QuestionError{Text: err.Error()}
	}
	all, err := destinations(&q, views)
	if err != nil {
		return nil, &status.QuestionError{Text: err.Error()}
	}
	if sender, err := netip.ParseAddr(q.From); err == nil { // of what has addresses of both families, those that it can send to
		family := proxy.FamilyOf(sender.Unmap())
		other := func(d destination) bool { return d.view.State.Family() != family }
		if slices.ContainsFunc(all, func(d destination) bool { return !other(d) }) {
			all = slices.DeleteFunc(all, other)
		}
	}
	if len(all) > maxAnswers {
		return nil, &status.QuestionError{Text: fmt.Sprintf("%s is at %d addresses and ports here, of which %d at most are explained at a time: name one", q.Target, len(all), maxAnswers)}
	}
	answers := make([]Answer, 0, len(all))
	for i := range all {
		from, err := all[i].view.sender(q.From, all[i].route())
		if err != nil {
			return nil, &status.QuestionError{Text: err.Error()}
		}
		p := all[i].path(from, lookup)
		packet := proxy.Packet{From: from.Source, To: all[i].frontends[0], OnNode: all[i].view.onNode}
		if err := all[i].view.follow(ctx, &p, packet, q.Live); err != nil {
			return nil, err
		}
		answers = append(answers, Answer{p, all[i].view.passages(&p, packet)})
	}
	return answers, nil
}

// onNode tells whether an address is one of this node's.
func (v *View) onNode(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(v.Node.Addrs, a) }

func (to *destination) path(from sender, lookup Lookup) status.Path {
	v, route := to.view, to.route()
	d := v.State.Decide(from.Source, to.frontends[0])
	p := status.Path{From: from.words, Verdict: d.Verdict.String()}
	for _, f := range to.frontends {
		p.To = append(p.To, f.String())
		for _, loser := range v.State.Losers(f) {
			if name := loser.String(); !slices.Contains(p.Losers, name) {
				p.Losers = append(p.Losers, name)
			}
		}
	}
	if route == nil {
		p.Reason = v.noService(&d, to.frontends[0].Addr)
		return p
	}
	service, endpoints := lookup(route.Port.ServiceName)
	localOnly := d.Local || route.Kind == proxy.ClusterIP && service.InternalTrafficPolicy == policyLocal
	p.Reason = reason(&d, from, localOnly)
	p.Service, p.Kind = route.Port.String(), route.Kind.String()
	if route.Affinity != 0 {
		p.Affinity = fmt.Sprintf("a client keeps its endpoint for %d s after its last new connection (sessionAffinity ClientIP)", route.Affinity)
	}
	used := map[netip.AddrPort]bool{}
	for _, address := range d.Endpoints {
		used[address] = true
	}
	known := map[netip.AddrPort]*status.Endpoint{}
	for _, e := range endpoints {
		if e.Port != route.Port.Port || e.Protocol != route.Port.Protocol.String() || proxy.FamilyOf(e.Address.Addr()) != v.State.Family() {
			continue
		}
		known[e.Address] = &e
		if !used[e.Address] && d.Reason != proxy.SourceRefused {
			p.NotUsed = append(p.NotUsed, status.PathEndpoint{Address: e.Address, Node: e.Node, Why: e.WhyNot(localOnly)})
		}
	}
	for _, address := range d.Endpoints {
		e := status.PathEndpoint{Address: address}
		if k := known[address]; k != nil {
			e.Node = k.Node
		}
		e.Masqueraded, e.Why = v.masquerade(&d, from, address)
		p.Endpoints = append(p.Endpoints, e)
	}
	slices.SortFunc(p.Endpoints, func(a, b status.PathEndpoint) int { return a.Address.Compare(b.Address) })
	return p
}
