// Package world makes random objects for tests: a few Services and EndpointSlices that change in all respects, the same ones for the
// same seed, of addresses in a lab (test/lab).
package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sluice/proxy"
	"sluice/test/lab"
)

// MaxServices can exist at the same time.
const MaxServices = 5

// maxSlices is how many slices each can have in a family.
const maxSlices = 2

// Zone is that of the lab's node. Another one is not.
const (
	Zone      = "here"
	otherZone = "there"
)

// World is the objects that exist, and makes their changes.
type World struct {
	*rand.Rand
	names map[proxy.Family]map[string]netip.Addr
	// Services that exist, by number.
	Services [MaxServices]*corev1.Service
	// Slices that exist, by name.
	Slices map[string]*discoveryv1.EndpointSlice
}

// New makes a world without objects, of a lab with these names (Lab.Names).
func New(seed uint64, names map[proxy.Family]map[string]netip.Addr) *World {
	return &World{Rand: rand.New(rand.NewPCG(seed, seed)), names: names, Slices: map[string]*discoveryv1.EndpointSlice{}}
}

// Often is true in p of 100 cases.
func (w *World) Often(p int) bool { return w.IntN(100) < p }

// Pick returns one of them.
func Pick[T any](w *World, from ...T) T { return from[w.IntN(len(from))] }

// some returns each element with the chance of one half.
func some[T any](w *World, from ...T) (chosen []T) {
	for _, e := range from {
		if w.Often(50) {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

// ServiceIP is the ClusterIP of the Service with that number. One more is never used.
func ServiceIP(f proxy.Family, i int) netip.Addr {
	b := lab.ServiceCIDRs[f].Addr().AsSlice()
	b[len(b)-2], b[len(b)-1] = 1, byte(1+i)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func serviceName(i int) string { return fmt.Sprint("s", i) }

// service makes the Service with that number.
func (w *World) service(i int) *corev1.Service {
	both := proxy.Families[:]
	families := Pick(w, both, both, both, both[:1], both[1:])
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceName(i)}}
	s.Spec.Type = Pick(w, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	if len(families) == 2 {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, f := range families {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, ServiceIP(f, i).String())
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(f.String()))
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	if w.Often(4) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "another"}
	}
	external := s.Spec.Type != corev1.ServiceTypeClusterIP
	for k := range 1 + w.IntN(2) {
		p := corev1.ServicePort{Name: fmt.Sprint("p", k), Port: int32(80 + 363*k), Protocol: Pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)}
		if w.Often(10) {
			p.Protocol = corev1.ProtocolSCTP
		}
		if external {
			p.NodePort = int32(30100 + 10*i + k)
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if w.Often(30) {
		for _, f := range families {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, w.names[f][fmt.Sprint("ext", i+1)].String())
		}
	}
	if w.Often(15) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if w.Often(25) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if (external || len(s.Spec.ExternalIPs) > 0) && w.Often(40) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.loadBalancer(s, families, i)
	}
	return s
}

func (w *World) loadBalancer(s *corev1.Service, families []proxy.Family, i int) {
	mode := Pick(w, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
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
	if w.Often(30) {
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
func (w *World) conditions(host string, k int) discoveryv1.EndpointConditions {
	switch {
	case host == twice && k > 0:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	case w.Often(5):
		return discoveryv1.EndpointConditions{}
	case w.Often(70):
		return discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
	case host == twice:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	default:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(w.Often(60)), Terminating: new(w.Often(60))}
	}
}

// slice makes the k-th slice of a Service in a family.
func (w *World) slice(name string, k int, s *corev1.Service, f proxy.Family) *discoveryv1.EndpointSlice {
	e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressType(f.String())}
	for _, p := range s.Spec.Ports {
		if !w.Often(92) {
			continue
		}
		e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(Pick[int32](w, 8080, 8081))})
	}
	hinted, busy := w.Often(20), w.Often(50)
	for _, node := range []string{"node", "node2"} {
		for _, host := range some(w, hosts[k][node]...) {
			p := discoveryv1.Endpoint{Addresses: []string{w.names[f][host].String()}, NodeName: new(node)}
			if busy || host == twice {
				p.Conditions = w.conditions(host, k)
			} else {
				p.Conditions.Ready = new(true)
			}
			if hinted && w.Often(90) {
				p.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: Pick(w, Zone, otherZone)}}}
				if w.Often(30) {
					p.Hints.ForNodes = []discoveryv1.ForNode{{Name: node}}
				}
			}
			e.Endpoints = append(e.Endpoints, p)
		}
	}
	return e
}

// Object is a *corev1.Service or a *discoveryv1.EndpointSlice.
type Object interface {
	metav1.Object
	runtime.Object
}

// Change is what happens to objects, in this order.
type Change []Operation

// Operation applies an object, or deletes it.
type Operation struct {
	Object
	Gone bool
}

func (c *Change) apply(o Object) { *c = append(*c, Operation{o, false}) }

func (c *Change) remove(o Object) { *c = append(*c, Operation{o, true}) }

// End removes all that exists.
func (w *World) End() (c Change) {
	for i, svc := range w.Services {
		if svc != nil {
			c.remove(svc)
			w.Services[i] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.Slices)) {
		c.remove(w.Slices[name])
	}
	clear(w.Slices)
	return c
}

// Step changes some objects.
func (w *World) Step() (c Change) {
	for range 1 + w.IntN(4) {
		i := w.IntN(MaxServices)
		old := w.Services[i]
		switch n := w.IntN(10); {
		case old == nil || n < 2: // another Service; endpoints come before or after it
			if old != nil {
				c.remove(old)
			}
			w.Services[i] = w.service(i)
			c.apply(w.Services[i])
			w.reslice(&c, i, maxSlices*2)
		case n < 5: // the same addresses, with all the rest anew
			changed := w.service(i)
			changed.Spec.ClusterIP, changed.Spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
			changed.Spec.IPFamilies, changed.Spec.IPFamilyPolicy = old.Spec.IPFamilies, old.Spec.IPFamilyPolicy
			w.Services[i] = changed
			c.apply(changed)
		case n < 6:
			c.remove(old)
			w.Services[i] = nil
		default:
			w.reslice(&c, i, 1)
		}
	}
	return c
}

// reslice replaces or removes up to n of a Service's slices.
func (w *World) reslice(c *Change, i, n int) {
	for range n {
		f, k := Pick(w, proxy.Families[:]...), w.IntN(maxSlices)
		name := fmt.Sprintf("%s-%v-%d", serviceName(i), map[proxy.Family]string{proxy.IPv4: "v4", proxy.IPv6: "v6"}[f], k)
		if old := w.Slices[name]; old != nil && w.Often(20) {
			c.remove(old)
			delete(w.Slices, name)
			continue
		}
		w.Slices[name] = w.slice(name, k, w.Services[i], f)
		c.apply(w.Slices[name])
	}
}

// String shows the objects in YAML.
func (w *World) String() string {
	var b strings.Builder
	for _, s := range w.Services {
		if s != nil {
			text, _ := yaml.Marshal(map[string]any{"service": s.Name, "spec": s.Spec, "status": s.Status.LoadBalancer, "labels": s.Labels})
			fmt.Fprintf(&b, "%s---\n", text)
		}
	}
	for _, s := range w.Slices {
		fmt.Fprintf(&b, "slice %s, ports", s.Name)
		for _, p := range s.Ports {
			fmt.Fprintf(&b, " %s/%s:%d", *p.Name, *p.Protocol, *p.Port)
		}
		for _, e := range s.Endpoints {
			text, _ := yaml.Marshal(e)
			fmt.Fprintf(&b, "\n  %s", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " "))
		}
		b.WriteString("\n")
	}
	return b.String()
}
