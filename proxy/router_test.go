package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestPoolsAreShared(t *testing.T) {
	for _, f := range Families {
		svc := testService(f)
		loadBalancer(f, svc)
		externalPolicyLocal(f, svc)
		internalPolicyLocal(f, svc)
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		plan := PlanService(testNode(f), svc, []*discoveryv1.EndpointSlice{testSlice(f, "a", mixedEndpoints)}, nil)
		cluster, local := plan.Frontends[1].Route.Pool, plan.Frontends[1].Route.LocalPool
		if plan.Frontends[0].Route.Pool != local || plan.Frontends[0].Route.LocalPool != nil {
			t.Errorf("%v: the ClusterIP has not the local pool, although its policy is Local", f)
		}
		for _, fr := range plan.Frontends[1:] {
			if fr.Route.Pool != cluster || fr.Route.LocalPool != local {
				t.Errorf("%v: %v has pools of its own", f, fr.Route.Kind)
			}
		}
		if cluster.AffinityID == local.AffinityID {
			t.Errorf("%v: both pools have the affinity id %d", f, local.AffinityID)
		}
		other := IPv4 + IPv6 - f
		svc.Spec.ClusterIPs, svc.Spec.IPFamilies = []string{ip(other, "cluster1")}, nil
		loadBalancer(other, svc)
		if again := PlanService(testNode(other), svc, nil, nil); again.Frontends[1].Route.Pool.AffinityID != cluster.AffinityID {
			t.Errorf("%v and %v give different affinity ids", f, other)
		}
	}
}

// Planning goes on from the slots that there are, pool by pool.
func TestPlanKeepsSlots(t *testing.T) {
	for _, f := range Families {
		svc := testService(f)
		loadBalancer(f, svc)
		externalPolicyLocal(f, svc)
		for _, tc := range []struct {
			name           string
			slots          map[string]string // "pool|local pool" by frontend address
			internal       change
			cluster, local string
		}{
			{"from the first frontend", map[string]string{"cluster1": "pod3:8080 pod1:8080", "ext1": "pod1:8080|pod3:8080 pod2:8080"}, nil,
				"pod3:8080 pod1:8080 pod2:8080", "pod3:8080 pod2:8080"},
			{"from a later one", map[string]string{"lb1": "pod3:8080 pod2:8080 pod1:8080|pod3:8080 pod2:8080"}, nil,
				"pod3:8080 pod2:8080 pod1:8080", "pod3:8080 pod2:8080"},
			{"the ClusterIP has local ones", map[string]string{"cluster1": "pod3:8080 pod2:8080", "ext1": "pod2:8080 pod1:8080|pod2:8080"}, internalPolicyLocal,
				"pod2:8080 pod1:8080 pod3:8080", "pod3:8080 pod2:8080"},
			{"nothing known", nil, nil, "pod1:8080 pod2:8080 pod3:8080", "pod2:8080 pod3:8080"},
		} {
			svc := svc.DeepCopy()
			if tc.internal != nil {
				tc.internal(f, svc)
			}
			known := SlotsFunc(func(fr Frontend) (pool, localPool []netip.AddrPort) {
				for name, slots := range tc.slots {
					if ipAddr(f, name) == fr.Addr {
						p, l, _ := strings.Cut(slots, "|")
						return ats(f, p), ats(f, l)
					}
				}
				return nil, nil
			})
			plan := PlanService(testNode(f), svc, []*discoveryv1.EndpointSlice{testSlice(f, "a", "pod1 pod2@here pod3@here")}, known)
			if diff := cmp.Diff(ats(f, tc.cluster), plan.Frontends[1].Route.Pool.Slots, compareAddrs); diff != "" {
				t.Errorf("%s, %v: cluster pool (-want +got):\n%s", tc.name, f, diff)
			}
			if diff := cmp.Diff(ats(f, tc.local), plan.Frontends[1].Route.LocalPool.Slots, compareAddrs); diff != "" {
				t.Errorf("%s, %v: local pool (-want +got):\n%s", tc.name, f, diff)
			}
		}
	}
}

func TestHealthCheck(t *testing.T) {
	for _, tc := range []struct {
		name      string
		change    change
		endpoints string
		want      *HealthCheck
	}{
		{"local ready ones count", nil, "pod1@here pod2@here pod3 pod4@here,draining pod5@here,notready", &HealthCheck{32000, 2}},
		{"draining ones do not", nil, "pod4@here,draining", &HealthCheck{32000, 0}},
		{"policy Cluster", func(_ Family, svc *corev1.Service) { svc.Spec.ExternalTrafficPolicy = "Cluster" }, "pod1@here", nil},
		{"type NodePort", func(_ Family, svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeNodePort }, "pod1@here", nil},
		{"no port", func(_ Family, svc *corev1.Service) { svc.Spec.HealthCheckNodePort = 0 }, "pod1@here", nil},
		{"no port that can be", func(_ Family, svc *corev1.Service) { svc.Spec.HealthCheckNodePort = 70000 }, "pod1@here", nil},
		{"two ports of one pod are one endpoint", func(_ Family, svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
		}, "pod1@here", &HealthCheck{32000, 1}},
	} {
		for _, f := range Families {
			svc, slice := testService(f), testSlice(f, "a", tc.endpoints)
			loadBalancer(f, svc)
			externalPolicyLocal(f, svc)
			svc.Spec.HealthCheckNodePort = 32000
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new("more"), Port: new(int32(8081))})
			if tc.change != nil {
				tc.change(f, svc)
			}
			plan := PlanService(testNode(f), svc, []*discoveryv1.EndpointSlice{slice}, nil)
			if diff := cmp.Diff(tc.want, plan.HealthCheck); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", tc.name, f, diff)
			}
		}
	}
}

func TestLocalhostNodePorts(t *testing.T) {
	for _, f := range Families {
		n, svc := testNode(f), testService(f)
		n.NodePortAddrs = nil // --nodeport-addresses localhost
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053})
		internalPolicyLocal(f, svc)
		slices := []*discoveryv1.EndpointSlice{testSlice(f, "a", "pod1 pod2@here")}
		if plan := PlanService(n, svc, slices, nil); plan.Localhost != nil {
			t.Errorf("%v: not asked for, and planned: %v", f, plan.Localhost)
		}
		n.LocalhostNodePorts = true
		for _, policy := range []change{nil, externalPolicyLocal} {
			want := ats(f, "pod1:8080 pod2:8080")
			if policy != nil {
				policy(f, svc)
				want = ats(f, "pod2:8080")
			}
			plan := PlanService(n, svc, slices, nil)
			if len(plan.Localhost) != 1 || plan.Localhost[0].Frontend != (Frontend{f.Loopback(), 30080, TCP}) {
				t.Fatalf("%v: planned %v, want one TCP port", f, plan.Localhost)
			}
			pool := plan.Localhost[0].Route.Pool
			if local := plan.Localhost[0].Route.LocalPool; local != nil {
				pool = local
			}
			if diff := cmp.Diff(want, pool.Slots, compareAddrs); diff != "" {
				t.Errorf("%v: endpoints (-want +got):\n%s", f, diff)
			}
		}
	}
}
