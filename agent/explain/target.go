package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/agent/status"
	"sluice/proxy"
)

// destination is where packets are sent to: frontends that are alike, or one address that no Service has.
type destination struct {
	view      *View
	frontends []proxy.Frontend
}

func (d *destination) route() *proxy.Route { return d.view.State.Route(d.frontends[0]) }

// protocols are what a Question may name, in the order of their answers.
var protocols = [...]proxy.Protocol{proxy.TCP, proxy.UDP, proxy.SCTP}

// parseProtocol returns 0 for any protocol.
func parseProtocol(s string) proxy.Protocol {
	for _, p := range protocols {
		if strings.EqualFold(p.String(), s) {
			return p
		}
	}
	return 0
}

// destinations finds out what a question is about that Check finds nothing wrong with.
func destinations(q *status.Question, views []View) ([]destination, error) {
	protocol := parseProtocol(q.Protocol)
	if to, err := netip.ParseAddrPort(q.Target); err == nil {
		return atAddress(views, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), protocol)
	}
	if a, err := netip.ParseAddr(q.Target); err == nil {
		a = a.Unmap()
		all := matching(views, func(f proxy.FrontendRoute) bool {
			return (protocol == 0 || f.Protocol == protocol) && (f.Addr == a || leadsTo(f.Route, a))
		})
		if len(all) == 0 {
			return nil, fmt.Errorf("%v is no address of a Service, and of no endpoint that this node sends to; with a port it is explained all the same, as %v", a, netip.AddrPortFrom(a, 80))
		}
		return all, nil
	}
	return ofService(q, views, protocol)
}

func leadsTo(r *proxy.Route, a netip.Addr) bool {
	for _, p := range []*proxy.Pool{r.Pool, r.LocalPool} {
		if p != nil && slices.ContainsFunc(p.Slots, func(e netip.AddrPort) bool { return e.Addr() == a }) {
			return true
		}
	}
	return false
}

// ofService reads NAMESPACE/SERVICE:PORT, of which all but the Service may be missing, or NODE:NODEPORT.
func ofService(q *status.Question, views []View, protocol proxy.Protocol) ([]destination, error) {
	name, port, hasPort := strings.Cut(q.Target, ":")
	if _, err := netip.ParseAddr(name); err == nil && hasPort {
		return nil, fmt.Errorf("%q is no port: it is a number from 0 to 65535", port)
	}
	namespace, service, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace, service = "", name
	}
	if service == "" || hasPort && port == "" || strings.ContainsAny(service+port, "/:") {
		return nil, fmt.Errorf("%q is neither NAMESPACE/SERVICE[:PORT] nor ADDRESS[:PORT] (an IPv6 address with a port has brackets, as in [fd00::1]:80)", q.Target)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	all := matching(views, func(f proxy.FrontendRoute) bool {
		p := f.Route.Port
		return p.Name == service && (!qualified || p.Namespace == namespace) && (protocol == 0 || f.Protocol == protocol) &&
			(!hasPort || p.Port == port || err == nil && f.Port == uint16(number))
	})
	if len(all) == 0 && !qualified && err == nil { // this node's name, and a NodePort
		all = matching(views, func(f proxy.FrontendRoute) bool {
			return f.Route.Kind == proxy.NodePort && f.Port == uint16(number) && (protocol == 0 || f.Protocol == protocol) && views[0].Node.Name == service
		})
	}
	switch {
	case len(all) > 0:
		return all, nil
	case !qualified && err == nil && len(views) > 0 && views[0].Node.Name == service:
		return nil, fmt.Errorf("no Service has the NodePort %d here: `sluice get services` lists those that there are", number)
	}
	return nil, notServed(q, views, func(n proxy.ServiceName) bool {
		return n.Name == service && (!qualified || n.Namespace == namespace)
	})
}

// maxPorts is how many ports an error names.
const maxPorts = 6

// notServed says why nothing of the Services that are asked about is what the question names.
func notServed(q *status.Question, views []View, asked func(proxy.ServiceName) bool) error {
	there := map[string]struct{}{}
	for _, v := range views {
		for plan := range v.State.Plans() {
			if !asked(plan.Name) {
				continue
			}
			for _, f := range plan.Frontends {
				port := fmt.Sprintf("%d/%v", f.Port, f.Protocol)
				if name := f.Route.Port.Port; name != "" {
					port += " (" + name + ")"
				}
				there[port] = struct{}{}
			}
			if len(plan.Frontends) == 0 && len(plan.Ignored) > 0 {
				return fmt.Errorf("%v: %s", plan.Name, plan.Ignored[0])
			}
		}
	}
	if len(there) == 0 {
		return fmt.Errorf("this node serves no Service %s: `sluice get services` lists those that it does", q.Target)
	}
	ports := slices.Sorted(maps.Keys(there))
	if more := len(ports) - maxPorts; more > 0 {
		ports = append(ports[:maxPorts], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("the Service has no such port or protocol here: %s has %s", strings.SplitN(q.Target, ":", 2)[0], strings.Join(ports, ", "))
}

// atAddress is one address and port, whoever has it.
func atAddress(views []View, to netip.AddrPort, protocol proxy.Protocol) ([]destination, error) {
	i := slices.IndexFunc(views, func(v View) bool { return v.State.Family() == proxy.FamilyOf(to.Addr()) })
	if i < 0 {
		return nil, fmt.Errorf("%v is not served: this node has no %v", to, proxy.FamilyOf(to.Addr()))
	}
	var all []destination
	for _, p := range protocols {
		f := proxy.Frontend{Addr: to.Addr(), Port: to.Port(), Protocol: p}
		if p == protocol || protocol == 0 && views[i].State.Route(f) != nil {
			all = append(all, destination{&views[i], []proxy.Frontend{f}})
		}
	}
	if len(all) == 0 {
		all = []destination{{&views[i], []proxy.Frontend{{Addr: to.Addr(), Port: to.Port(), Protocol: proxy.TCP}}}}
	}
	return all, nil
}

// matching lists the frontends that plans have, in their order; those of one route, like the NodePorts of a Service's port at
// all addresses of this node, are one destination.
func matching(views []View, match func(proxy.FrontendRoute) bool) []destination {
	var all []destination
	for i := range views {
		v := &views[i]
		plans := slices.SortedFunc(v.State.Plans(), func(a, b *proxy.ServicePlan) int { return a.Name.Compare(b.Name) })
		at := map[*proxy.Route]int{}
		for _, plan := range plans {
			for _, f := range plan.Frontends {
				if !match(f) {
					continue
				}
				r := v.State.Route(f.Frontend) // of the Service that has it, which may be another
				j, known := at[r]
				if !known {
					j = len(all)
					at[r] = j
					all = append(all, destination{view: v})
				}
				if !slices.Contains(all[j].frontends, f.Frontend) {
					all[j].frontends = append(all[j].frontends, f.Frontend)
				}
			}
		}
	}
	for _, d := range all {
		slices.SortFunc(d.frontends, func(a, b proxy.Frontend) int {
			return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
		})
	}
	return all
}
