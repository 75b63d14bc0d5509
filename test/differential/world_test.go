package differential

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
	"sluice/test/lab"
)

// Number of Services that can exist, and of slices that each can have in a family.
const (
	maxServices = 5
	maxSlices   = 2
)

// Zone of the node, and another one.
const (
	zone      = "here"
	otherZone = "there"
)

// world makes random objects, the same ones for the same seed.
type world struct {
	*rand.Rand
	names map[proxy.Family]map[string]netip.Addr
	// services that exist, by number; slices by name.
	services [maxServices]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
}

// often is true in p of 100 cases.
func (w *world) often(p int) bool { return w.IntN(100) < p }

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// some returns each element with the chance of one half.
func some[T any](w *world, from ...T) (chosen []T) {
	for _, e := range from {
		if w.often(50) {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

// serviceIP is the ClusterIP of the Service with that number. One more is never used.
func serviceIP(f proxy.Family, i int) netip.Addr {
	b := lab.ServiceCIDRs[f].Addr().AsSlice()
	b[len(b)-2], b[len(b)-1] = 1, byte(1+i)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func serviceName(i int) string { return fmt.Sprint("s", i) }

// service makes the Service with that number.
func (w *world) service(i int) *corev1.Service {
	both := proxy.Families[:]
	families := pick(w, both, both, both, both[:1], both[1:])
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceName(i)}}
	s.Spec.Type = pick(w, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	if len(families) == 2 {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, f := range families {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, serviceIP(f, i).String())
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(f.String()))
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	if w.often(4) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "another"}
	}
	external := s.Spec.Type != corev1.ServiceTypeClusterIP
	for k := range 1 + w.IntN(2) {
		p := corev1.ServicePort{Name: fmt.Sprint("p", k), Port: int32(80 + 363*k), Protocol: pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)}
		if w.often(10) {
			p.Protocol = corev1.ProtocolSCTP
		}
		if external {
			p.NodePort = int32(30100 + 10*i + k)
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if w.often(30) {
		for _, f := range families {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, w.names[f][fmt.Sprint("ext", i+1)].String())
		}
	}
	if w.often(15) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if w.often(25) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if (external || len(s.Spec.ExternalIPs) > 0) && w.often(40) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.loadBalancer(s, families, i)
	}
	return s
}

func (w *world) loadBalancer(s *corev1.Service, families []proxy.Family, i int) {
	mode := pick(w, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
	var ranges []string
	for _, f := range families {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: w.names[f][fmt.Sprint("lb", i+1)].String(), IPMode: &mode})
		all := []string{lab.ClusterCIDRs[f].String(), lab.LoadBalancerCIDRs[f].String()}
		for _, name := range []string{"outside", "node", "pod1", "node2"} {
			a := w.names[f][name]
			all = append(all, netip.PrefixFrom(a, a.BitLen()).String())
		}
		ranges = append(ranges, some(w, all...)...)
	}
	if w.often(30) {
		s.Spec.LoadBalancerSourceRanges = ranges
	}
}

// hosts that the endpoints of each slice are on, by the node that they are on. One is in two slices.
var hosts = [maxSlices]map[string][]string{
	{"node": {"pod1", "pod2", "node"}, "node2": {"far1"}},
	{"node": {"pod1", "pod3"}, "node2": {"far2"}},
}

// twice is the host in two slices. With kube-proxy it is a matter of chance which of two copies counts that are not terminating
// (docs/differences.md), so that the second one always is, and the first one is if it is not ready.
const twice = "pod1"

// conditions of an endpoint in the k-th slice.
func (w *world) conditions(host string, k int) discoveryv1.EndpointConditions {
	switch {
	case host == twice && k > 0:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	case w.often(5):
		return discoveryv1.EndpointConditions{}
	case w.often(70):
		return discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
	case host == twice:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	default:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(w.often(60)), Terminating: new(w.often(60))}
	}
}

// slice makes the k-th slice of a Service in a family.
func (w *world) slice(name string, k int, s *corev1.Service, f proxy.Family) *discoveryv1.EndpointSlice {
	e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressType(f.String())}
	for _, p := range s.Spec.Ports {
		if !w.often(92) {
			continue
		}
		e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(pick[int32](w, 8080, 8081))})
	}
	hinted, busy := w.often(20), w.often(50)
	for _, node := range []string{"node", "node2"} {
		for _, host := range some(w, hosts[k][node]...) {
			p := discoveryv1.Endpoint{Addresses: []string{w.names[f][host].String()}, NodeName: new(node)}
			if busy || host == twice {
				p.Conditions = w.conditions(host, k)
			} else {
				p.Conditions.Ready = new(true)
			}
			if hinted && w.often(90) {
				p.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick(w, zone, otherZone)}}}
				if w.often(30) {
					p.Hints.ForNodes = []discoveryv1.ForNode{{Name: node}}
				}
			}
			e.Endpoints = append(e.Endpoints, p)
		}
	}
	return e
}

// change is what happens to the objects in one step, in this order.
type change []operation

// operation applies an object, or deletes it.
type operation struct {
	object
	gone bool
}

func (c *change) apply(o object) { *c = append(*c, operation{o, false}) }

func (c *change) remove(o object) { *c = append(*c, operation{o, true}) }

// step changes some objects.
func (w *world) step() (c change) {
	for range 1 + w.IntN(4) {
		i := w.IntN(maxServices)
		old := w.services[i]
		switch n := w.IntN(10); {
		case old == nil || n < 2: // another Service; endpoints come before or after it
			if old != nil {
				c.remove(old)
			}
			w.services[i] = w.service(i)
			c.apply(w.services[i])
			w.reslice(&c, i, maxSlices*2)
		case n < 5: // the same addresses, with all the rest anew
			changed := w.service(i)
			changed.Spec.ClusterIP, changed.Spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
			changed.Spec.IPFamilies, changed.Spec.IPFamilyPolicy = old.Spec.IPFamilies, old.Spec.IPFamilyPolicy
			w.services[i] = changed
			c.apply(changed)
		case n < 6:
			c.remove(old)
			w.services[i] = nil
		default:
			w.reslice(&c, i, 1)
		}
	}
	return c
}

// reslice replaces or removes up to n of a Service's slices.
func (w *world) reslice(c *change, i, n int) {
	for range n {
		f, k := pick(w, proxy.Families[:]...), w.IntN(maxSlices)
		name := fmt.Sprintf("%s-%v-%d", serviceName(i), map[proxy.Family]string{proxy.IPv4: "v4", proxy.IPv6: "v6"}[f], k)
		if old := w.slices[name]; old != nil && w.often(20) {
			c.remove(old)
			delete(w.slices, name)
			continue
		}
		w.slices[name] = w.slice(name, k, w.services[i], f)
		c.apply(w.slices[name])
	}
}

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
func (w *world) hasFar(s *corev1.Service) bool {
	for _, slice := range w.slices {
		if slice.Labels[discoveryv1.LabelServiceName] == s.Name &&
			slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.NodeName == "node2" }) {
			return true
		}
	}
	return false
}

// probes chooses up to n of all that could be asked.
func (w *world) probes(n int) []probe {
	var all []probe
	far := false
	add := func(f proxy.Family, to string, addr netip.Addr, port int32, protocol proxy.Protocol, sticky bool) {
		for _, from := range []string{"pod1", "pod2", "far1", "node", "outside", "node2"} {
			if from == "far1" && far {
				continue // its neighbour would answer it by the short way, which no proxy sees
			}
			all = append(all, probe{from: from, to: to, at: netip.AddrPortFrom(addr, uint16(port)), protocol: protocol, sticky: sticky})
		}
		all = append(all, probe{from: "outside", to: to + " from its other address", source: w.names[f]["outside2"], at: netip.AddrPortFrom(addr, uint16(port)), protocol: protocol, sticky: sticky})
	}
	for i, s := range w.services {
		for _, f := range proxy.Families {
			if s == nil {
				continue
			}
			far = w.hasFar(s)
			for _, p := range s.Spec.Ports {
				sticky, protocol := s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP, protocols[p.Protocol]
				add(f, s.Name+"'s ClusterIP", serviceIP(f, i), p.Port, protocol, sticky)
				add(f, s.Name+"'s external IP", w.names[f][fmt.Sprint("ext", i+1)], p.Port, protocol, sticky)
				add(f, s.Name+"'s load balancer", w.names[f][fmt.Sprint("lb", i+1)], p.Port, protocol, sticky)
				if p.NodePort != 0 {
					add(f, s.Name+"'s NodePort", w.names[f]["node"], p.NodePort, protocol, sticky)
				}
			}
		}
	}
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(n, len(all))]
	// What no Service has.
	i, f := w.IntN(maxServices+1), pick(w, proxy.Families[:]...)
	all = append(all, probe{from: pick(w, "pod1", "node", "outside"), to: "a port that no Service has", at: netip.AddrPortFrom(serviceIP(f, i), 8080), protocol: pick(w, proxy.TCP, proxy.UDP)})
	all = append(all, probe{from: "outside", to: "a NodePort at an address that serves none", at: netip.AddrPortFrom(w.names[f]["alias"], uint16(30100+10*w.IntN(maxServices))), protocol: proxy.TCP})
	slices.SortStableFunc(all, func(a, b probe) int { return cmp.Compare(a.to, b.to) })
	return all
}
