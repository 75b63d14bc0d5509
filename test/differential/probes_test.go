package differential

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/proxy"
	"sluice/test/world"
)

// probe is a connection that is tried in both labs.
type probe struct {
	from, to string
	source   netip.Addr
	at       netip.AddrPort
	protocol proxy.Protocol
	// sticky: each client stays with an endpoint, and which one is a matter of chance.
	sticky bool
}

func (p *probe) String() string {
	return fmt.Sprintf("%s %v %s (%v)", p.from, p.protocol, p.to, p.at)
}

var protocols = map[corev1.Protocol]proxy.Protocol{corev1.ProtocolTCP: proxy.TCP, corev1.ProtocolUDP: proxy.UDP, corev1.ProtocolSCTP: proxy.SCTP}

// hasFar tells whether a Service has endpoints on the other node.
func hasFar(w *world.World, s *corev1.Service) bool {
	for _, slice := range w.Slices {
		if slice.Labels[discoveryv1.LabelServiceName] == s.Name &&
			slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.NodeName == "node2" }) {
			return true
		}
	}
	return false
}

// chooseProbes chooses up to n of all that could be asked.
func chooseProbes(w *world.World, names map[proxy.Family]map[string]netip.Addr, n int) []probe {
	var all []probe
	far := false
	add := func(f proxy.Family, to string, addr netip.Addr, port int32, protocol proxy.Protocol, sticky bool) {
		for _, from := range []string{"pod1", "pod2", "far1", "node", "outside", "node2"} {
			if from == "far1" && far {
				continue // its neighbour would answer it by the short way, which no proxy sees
			}
			all = append(all, probe{from: from, to: to, at: netip.AddrPortFrom(addr, uint16(port)), protocol: protocol, sticky: sticky})
		}
		all = append(all, probe{from: "outside", to: to + " from its other address", source: names[f]["outside2"], at: netip.AddrPortFrom(addr, uint16(port)), protocol: protocol, sticky: sticky})
	}
	for i, s := range w.Services {
		for _, f := range proxy.Families {
			if s == nil {
				continue
			}
			far = hasFar(w, s)
			for _, p := range s.Spec.Ports {
				sticky, protocol := s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP, protocols[p.Protocol]
				add(f, s.Name+"'s ClusterIP", world.ServiceIP(f, i), p.Port, protocol, sticky)
				add(f, s.Name+"'s external IP", names[f][fmt.Sprint("ext", i+1)], p.Port, protocol, sticky)
				add(f, s.Name+"'s load balancer", names[f][fmt.Sprint("lb", i+1)], p.Port, protocol, sticky)
				if p.NodePort != 0 {
					add(f, s.Name+"'s NodePort", names[f]["node"], p.NodePort, protocol, sticky)
				}
			}
		}
	}
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(n, len(all))]
	// What no Service has.
	i, f := w.IntN(world.MaxServices+1), world.Pick(w, proxy.Families[:]...)
	all = append(all, probe{from: world.Pick(w, "pod1", "node", "outside"), to: "a port that no Service has", at: netip.AddrPortFrom(world.ServiceIP(f, i), 8080), protocol: world.Pick(w, proxy.TCP, proxy.UDP)})
	all = append(all, probe{from: "outside", to: "a NodePort at an address that serves none", at: netip.AddrPortFrom(names[f]["alias"], uint16(30100+10*w.IntN(world.MaxServices))), protocol: proxy.TCP})
	slices.SortStableFunc(all, func(a, b probe) int { return cmp.Compare(a.to, b.to) })
	return all
}
