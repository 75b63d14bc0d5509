package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world is a small cluster that changes at random. Its Services have few
// addresses and ports between them, so that they often claim the same frontends.
type world struct {
	*rand.Rand
	f        Family
	node     *Node
	services map[ServiceName]*corev1.Service
	slices   map[ServiceName][]*discoveryv1.EndpointSlice
}

func (w *world) name() ServiceName {
	return ServiceName{[]string{"a", "b"}[w.IntN(2)], []string{"v", "w", "x", "y", "z"}[w.IntN(5)]}
}

func (w *world) flip() bool { return w.IntN(2) == 0 }

func (w *world) service(name ServiceName) *corev1.Service {
	svc := testService(w.f)
	svc.Namespace, svc.Name = name.Namespace, name.Name
	svc.CreationTimestamp = metav1.NewTime(time.Unix(int64(w.IntN(4)), 0))
	svc.Spec.ClusterIPs = []string{ip(w.f, fmt.Sprintf("cluster%d", 1+w.IntN(8)))}
	svc.Spec.Type = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}[min(3, w.IntN(10)/3)]
	svc.Spec.Ports = nil
	for i := range 1 + w.IntN(3) {
		port := corev1.ServicePort{Name: []string{"http", "dns", "sip"}[i], Port: int32(80 + w.IntN(2)),
			Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[w.IntN(3)]}
		if svc.Spec.Type != corev1.ServiceTypeClusterIP && w.flip() {
			port.NodePort = int32(80 + w.IntN(3)) // may be the port of an externalIP that is the node's
		}
		svc.Spec.Ports = append(svc.Spec.Ports, port)
	}
	for range w.IntN(3) {
		svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, ip(w.f, []string{"ext1", "ext2", "node1", "cluster1"}[w.IntN(4)]))
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip(w.f, []string{"lb1", "ext1", "node2"}[w.IntN(3)])}}
		svc.Spec.HealthCheckNodePort = 32000
		if w.flip() {
			svc.Spec.LoadBalancerSourceRanges = []string{"192.168.0.0/16", "2001:db8:1::/64"}
		}
	}
	if w.flip() {
		externalPolicyLocal(w.f, svc)
	}
	if w.flip() {
		internalPolicyLocal(w.f, svc)
	}
	if w.flip() {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	return svc
}

func (w *world) slice(name ServiceName) *discoveryv1.EndpointSlice {
	endpoints := ""
	for range w.IntN(6) {
		endpoints += fmt.Sprintf(" pod%d", 1+w.IntN(12))
		endpoints += []string{"", "", "@here", "@there"}[w.IntN(4)]
		endpoints += []string{"", "", "", ",draining", ",notready", ",notready,notserving"}[w.IntN(6)]
		endpoints += []string{"", ",zone=zone-a", ",zone=zone-b", ",node=here", ",node=there,zone=zone-a"}[w.IntN(5)]
	}
	slice := testSlice(w.f, fmt.Sprint("s", w.IntN(3)), endpoints)
	slice.Namespace, slice.Labels[discoveryv1.LabelServiceName] = name.Namespace, name.Name
	slice.Ports = nil
	for _, port := range []string{"http", "dns", "sip"} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port, Protocol: &protocol, Port: new(int32(8080))})
		}
	}
	return slice
}

// change changes one object and returns the Services that are to be planned again.
func (w *world) change() []ServiceName {
	name := w.name()
	switch w.IntN(12) {
	case 0:
		delete(w.services, name)
	case 1, 2, 3:
		w.services[name] = w.service(name)
	case 4:
		delete(w.slices, name)
	case 5: // the node gets other addresses, or moves to another zone
		w.node.NodePortAddrs = ipAddrs(w.f, []string{"", "node1", "node1 node2"}[w.IntN(3)])
		w.node.Zone = []string{"zone-a", "zone-b", ""}[w.IntN(3)]
		w.node.MasqueradeAll = w.flip()
		return slices.Collect(maps.Keys(w.services))
	default:
		slice := w.slice(name)
		list := slices.DeleteFunc(slices.Clone(w.slices[name]), func(s *discoveryv1.EndpointSlice) bool { return s.Name == slice.Name })
		w.slices[name] = append(list, slice)
	}
	return []ServiceName{name}
}

func (w *world) plan(name ServiceName, slots SlotsFunc) *ServicePlan {
	if svc := w.services[name]; svc != nil {
		return PlanService(w.node, svc, w.slices[name], slots)
	}
	return nil
}

// content is what a state, or a kernel that took its deltas, holds.
type content struct {
	Routes                     map[Frontend]Route
	ClusterIPs, LocalEndpoints map[netip.Addr]bool
	Conflicts                  []Conflict
}

// contentOf reads a state. With sorted slots the order in which it came about does not show.
func contentOf(s *State, sorted bool) content {
	c := content{map[Frontend]Route{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}, s.Conflicts()}
	pool := func(p *Pool) *Pool {
		if p == nil || !sorted {
			return p
		}
		return &Pool{slices.SortedFunc(slices.Values(p.Slots), netip.AddrPort.Compare), p.AffinityID}
	}
	for f, r := range s.Routes() {
		r := *r
		r.Pool, r.LocalPool = pool(r.Pool), pool(r.LocalPool)
		c.Routes[f] = r
	}
	for a := range s.ClusterIPs() {
		c.ClusterIPs[a] = true
	}
	for a := range s.LocalEndpoints() {
		c.LocalEndpoints[a] = true
	}
	return c
}

// apply does with a delta what a writer does, and fails where the delta does not fit.
func (c *content) apply(t *testing.T, d Delta) {
	t.Helper()
	for _, change := range d.Frontends {
		have, known := c.Routes[change.Frontend]
		if known != (change.Old != nil) || known && !have.equal(change.Old) {
			t.Fatalf("delta takes %v from %v, but it is %v", change.Frontend, change.Old, have)
		}
		if change.New == nil {
			delete(c.Routes, change.Frontend)
		} else {
			c.Routes[change.Frontend] = *change.New
		}
	}
	set := func(set map[netip.Addr]bool, added, removed []netip.Addr) {
		for _, a := range added {
			if set[a] {
				t.Fatalf("delta adds %v, which is there", a)
			}
			set[a] = true
		}
		for _, a := range removed {
			if !set[a] {
				t.Fatalf("delta removes %v, which is not there", a)
			}
			delete(set, a)
		}
	}
	set(c.ClusterIPs, d.AddedClusterIPs, d.RemovedClusterIPs)
	set(c.LocalEndpoints, d.AddedLocalEndpoints, d.RemovedLocalEndpoints)
}

// Whatever changes, in whatever order: the state is that of the objects as they
// are, and a writer that took every delta holds just that.
func TestStateFollowsObjects(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 50
	}
	for _, f := range Families {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%v seed %d", f, seed), func(t *testing.T) {
				w := &world{rand.New(rand.NewPCG(seed, uint64(f))), f, testNode(f), map[ServiceName]*corev1.Service{}, map[ServiceName][]*discoveryv1.EndpointSlice{}}
				s := NewState(f, Settings{})
				written := contentOf(s, false)
				logged := map[Conflict]bool{}
				contested := 0
				for step := range steps {
					var burst []Delta
					for range 1 + w.IntN(4) {
						for _, name := range w.change() {
							burst = append(burst, s.Set(name, w.plan(name, s.Slots)))
						}
					}
					var d Delta
					Merge(&d, burst...)
					written.apply(t, d)
					now := contentOf(s, false)
					written.Conflicts = now.Conflicts // no part of deltas
					if diff := cmp.Diff(now, written, compareAddrs, cmp.Comparer(sameRoute)); diff != "" {
						t.Fatalf("step %d: a writer that took the deltas (-state +writer):\n%s", step, diff)
					}

					fresh := NewState(f, Settings{})
					for name := range w.services { // in another order each time
						if plan := w.plan(name, nil); plan != nil {
							fresh.Set(name, plan)
						}
					}
					if diff := cmp.Diff(contentOf(fresh, true), contentOf(s, true), compareAddrs, cmp.Comparer(sameRoute)); diff != "" {
						t.Fatalf("step %d: state (-planned from scratch +as it came about):\n%s", step, diff)
					}

					begun, ended := s.ConflictChanges()
					for _, c := range begun {
						logged[c] = true
					}
					for _, c := range ended {
						delete(logged, c)
					}
					if diff := cmp.Diff(len(now.Conflicts), len(logged)); diff != "" {
						t.Fatalf("step %d: conflicts logged (-are +told):\n%s", step, diff)
					}
					contested += len(now.Conflicts)
				}
				if contested == 0 {
					t.Error("no conflict came up: the test tests less than it should")
				}
				for name := range w.services {
					written.apply(t, s.Set(name, nil))
				}
				if len(written.Routes)+len(written.ClusterIPs)+len(written.LocalEndpoints)+
					len(s.contested)+len(s.doubled)+len(s.affinity.owners)+len(s.affinity.moved) != 0 {
					t.Errorf("without Services there are left: %v, %v", written, s)
				}
			})
		}
	}
}

func sameRoute(a, b Route) bool { return a.equal(&b) }
