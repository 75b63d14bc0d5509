package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// pools prints the pools of a Service that has both: pods get the cluster's, others the local one.
func pools(f Family, plan *ServicePlan) string {
	for _, fr := range plan.Frontends {
		if fr.Route.LocalPool != nil {
			s := fmt.Sprintf("cluster %v local %v others %v", fr.Route.Pool.Slots, fr.Route.LocalPool.Slots, fr.Route.Others)
			return strings.ReplaceAll(named(f, s), ":8080", "")
		}
	}
	return "no split route"
}

// splitService is web with an external IP and both pools.
func splitService(f Family) *corev1.Service {
	svc := testService(f)
	svc.Spec.ExternalIPs = []string{ip(f, "ext1")}
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	return svc
}

func TestChoiceOfEndpoints(t *testing.T) {
	for _, tc := range []struct{ name, endpoints, want string }{
		{"none", "", "cluster [] local [] others []"},
		{"what is not said means ready", "pod1 pod2@here", "cluster [pod1 pod2] local [pod2] others []"},
		{"another node", "pod1@there", "cluster [pod1] local [] others []"},
		{"not ready", "pod1,notready,notserving pod2", "cluster [pod2] local [] others []"},
		{"not ready, and nothing is said of serving", "pod1,notready pod2", "cluster [pod2] local [] others [pod1]"},
		{"ready while it terminates", "pod1,ready,terminating", "cluster [pod1] local [] others []"},
		{"ready wins over draining", "pod1,draining pod2", "cluster [pod2] local [] others [pod1]"},
		{"draining when none is ready", "pod1,draining pod2@here,draining", "cluster [pod1 pod2] local [pod2] others []"},
		{"not serving while it terminates", "pod1,notready,notserving,terminating", "cluster [] local [] others []"},
		{"local draining, others ready", "pod1@here,draining pod2", "cluster [pod2] local [pod1] others []"},
		{"local draining, local ready", "pod1@here,draining pod2@here", "cluster [pod2] local [pod2] others [pod1]"},
		{"serving and not ready is no fallback", "pod1,notready,serving", "cluster [] local [] others [pod1]"},

		{"node hints", "pod1,node=here pod2,node=there", "cluster [pod1] local [] others [pod2]"},
		{"node hints for nobody here", "pod1,node=there pod2,node=there", "cluster [pod1 pod2] local [] others []"},
		{"node hints not on all", "pod1,node=here pod2", "cluster [pod1 pod2] local [] others []"},
		{"several node hints", "pod1,node=there,node=here pod2,node=there", "cluster [pod1] local [] others [pod2]"},
		{"zone hints", "pod1,zone=zone-a pod2,zone=zone-b", "cluster [pod1] local [] others [pod2]"},
		{"several zone hints", "pod1,zone=zone-b,zone=zone-a pod2,zone=zone-b", "cluster [pod1] local [] others [pod2]"},
		{"zone hints for nobody here", "pod1,zone=zone-b pod2,zone=zone-c", "cluster [pod1 pod2] local [] others []"},
		{"zone hints not on all", "pod1,zone=zone-a pod2", "cluster [pod1 pod2] local [] others []"},
		{"node before zone", "pod1,node=here,zone=zone-b pod2,node=there,zone=zone-a", "cluster [pod1] local [] others [pod2]"},
		{"zone when node hints do not fit", "pod1,node=there,zone=zone-a pod2,node=there,zone=zone-b", "cluster [pod1] local [] others [pod2]"},
		{"hints of endpoints that are not ready do not count", "pod1,zone=zone-a pod2,zone=zone-b pod3,notready,notserving", "cluster [pod1] local [] others [pod2]"},
		{"no hints for those that drain", "pod1,draining,zone=zone-a pod2,draining,zone=zone-b", "cluster [pod1 pod2] local [] others []"},
		{"no hints for local ones", "pod1,zone=zone-a pod2@here,zone=zone-b", "cluster [pod1] local [pod2] others []"},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				plan := PlanService(testNode(f), splitService(f), []*discoveryv1.EndpointSlice{testSlice(f, "a", tc.endpoints)}, nil)
				if diff := cmp.Diff(tc.want, pools(f, plan)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.endpoints, diff)
				}
			})
		}
	}
}

func TestNodeWithoutNameOrZone(t *testing.T) {
	for _, f := range Families {
		n := testNode(f)
		n.Name, n.Zone = "", ""
		slice := testSlice(f, "a", "pod1@,zone=,node= pod2@there,zone=zone-b,node=there")
		got := pools(f, PlanService(n, splitService(f), []*discoveryv1.EndpointSlice{slice}, nil))
		if want := "cluster [pod1 pod2] local [] others []"; got != want {
			t.Errorf("%v: got %s, want %s", f, got, want)
		}
	}
}

func TestSameEndpointInSeveralSlices(t *testing.T) {
	for _, tc := range []struct{ name, a, b, want string }{
		{"counts once", "pod1 pod2", "pod2 pod3", "cluster [pod1 pod2 pod3] local [] others []"},
		{"the one that is not terminating wins", "pod1,draining pod2", "pod1", "cluster [pod1 pod2] local [] others []"},
		{"also if it is not ready", "pod1,draining", "pod1,notready,notserving", "cluster [] local [] others []"},
		{"the ready one of two", "pod1,notready,notserving", "pod1", "cluster [pod1] local [] others []"},
		{"the serving one of two that terminate", "pod1,draining", "pod1,notready,notserving,terminating", "cluster [pod1] local [] others []"},
		{"the ready one of two, whatever the other's hints", "pod1,notready,zone=zone-a", "pod1", "cluster [pod1] local [] others []"},
		{"the serving one of two that terminate, whatever the other's hints", "pod1,notready,notserving,terminating,zone=zone-a", "pod1,draining", "cluster [pod1] local [] others []"},
		{"the local one of two", "pod1", "pod1@here", "cluster [pod1] local [pod1] others []"},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				slices := []*discoveryv1.EndpointSlice{testSlice(f, "a", tc.a), testSlice(f, "b", tc.b)}
				for range 2 { // the order of slices is not to matter
					plan := PlanService(testNode(f), splitService(f), slices, nil)
					if diff := cmp.Diff(tc.want, pools(f, plan)); diff != "" {
						t.Errorf("%s and %s (-want +got):\n%s", tc.a, tc.b, diff)
					}
					slices[0], slices[1] = slices[1], slices[0]
				}
			})
		}
	}
}

func TestWhichSlices(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(f Family, s *discoveryv1.EndpointSlice)
		want    string // endpoints
		ignored string
	}{
		{name: "as it is", change: func(Family, *discoveryv1.EndpointSlice) {}, want: "[pod1:8080 pod2:8080]"},
		{name: "of another Service", want: "[]",
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" }},
		{name: "of no Service", want: "[]", change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Labels = nil }},
		{name: "of another namespace", want: "[]", change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Namespace = "other" }},
		{name: "headless", want: "[]", change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" }},
		{name: "FQDN", want: "[]", change: func(_ Family, s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }},
		{name: "the other family", want: "[]",
			change: func(f Family, s *discoveryv1.EndpointSlice) { s.AddressType = addressType(IPv4 + IPv6 - f) }},
		{name: "port without name is the unnamed port", want: "[]", ignored: `port "http": none of its EndpointSlices has a port of that name for TCP`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Name = nil }},
		{name: "port without number", want: "[]", ignored: `EndpointSlice a: port "http" has no number`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }},
		{name: "port 0", want: "[]", ignored: `EndpointSlice a: port "http" has no number`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(0)) }},
		{name: "port 70000", want: "[]", ignored: `EndpointSlice a: port "http" is 70000, outside 1-65535`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(70000)) }},
		{name: "port without protocol is TCP", want: "[pod1:8080 pod2:8080]",
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = nil }},
		{name: "another protocol", want: "[]", ignored: `port "http": none of its EndpointSlices has a port of that name for TCP`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.ProtocolUDP) }},
		{name: "unknown protocol", want: "[]", ignored: `EndpointSlice a: port "http" has the protocol "QUIC"; TCP, UDP and SCTP are served`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.Protocol("QUIC")) }},
		{name: "another port name", want: "[]", ignored: `port "http": none of its EndpointSlices has a port of that name for TCP`, change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new("https") }},
		{name: "several ports", want: "[pod1:8080 pod2:8080]",
			change: func(_ Family, s *discoveryv1.EndpointSlice) {
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new("https"), Port: new(int32(8443))})
			}},
		{name: "first address only", want: "[pod1:8080 pod2:8080]",
			change: func(f Family, s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Addresses = append(s.Endpoints[0].Addresses, ip(f, "pod9"))
			}},
		{name: "no address", want: "[pod2:8080]", ignored: `EndpointSlice a: 1 of 2 endpoints have no usable IPvX address, the first of them ""`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil }},
		{name: "no IP", want: "[]", ignored: `EndpointSlice a: 2 of 2 endpoints have no usable IPvX address, the first of them "one"`,
			change: func(_ Family, s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Addresses[0], s.Endpoints[1].Addresses[0] = "one", "two"
			}},
		{name: "link-local", want: "[pod2:8080]", ignored: `EndpointSlice a: 1 of 2 endpoints have no usable IPvX address, the first of them "LINKLOCAL"`,
			change: func(f Family, s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = linkLocal[f] }},
		{name: "loopback", want: "[pod2:8080]", ignored: `EndpointSlice a: 1 of 2 endpoints have no usable IPvX address, the first of them "LOOPBACK"`,
			change: func(f Family, s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = f.Loopback().String() }},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				slice := testSlice(f, "a", "pod1 pod2")
				tc.change(f, slice)
				plan := PlanService(testNode(f), testService(f), []*discoveryv1.EndpointSlice{slice}, nil)
				got := named(f, fmt.Sprint(plan.Frontends[0].Route.Pool.Slots))
				if got != tc.want {
					t.Errorf("endpoints %s, want %s", got, tc.want)
				}
				ignored := named(f, strings.Join(plan.Ignored, "\n"))
				if ignored != tc.ignored {
					t.Errorf("ignored %q, want %q", ignored, tc.ignored)
				}
			})
		}
	}
}

// An address of the other family in a slice is left out; the rest of the slice is served.
func TestWrongFamilyInSlice(t *testing.T) {
	for _, f := range Families {
		slice := testSlice(f, "a", "pod1 pod2 pod3")
		wrong := ip(IPv4+IPv6-f, "pod2")
		slice.Endpoints[1].Addresses[0] = wrong
		plan := PlanService(testNode(f), testService(f), []*discoveryv1.EndpointSlice{slice}, nil)
		if diff := cmp.Diff(ats(f, "pod1:8080 pod3:8080"), plan.Frontends[0].Route.Pool.Slots, compareAddrs); diff != "" {
			t.Errorf("%v: endpoints (-want +got):\n%s", f, diff)
		}
		if len(plan.Ignored) != 1 || !strings.Contains(plan.Ignored[0], wrong) {
			t.Errorf("%v: ignored %q, want a note on %s", f, plan.Ignored, wrong)
		}
	}
}

func TestTenThousandEndpoints(t *testing.T) {
	for _, f := range Families {
		slice := testSlice(f, "a", strings.Repeat("pod1 ", 10000))
		addr := ipAddr(f, "pod1")
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addresses[0] = addr.String()
			addr = addr.Next()
		}
		plan := PlanService(testNode(f), testService(f), []*discoveryv1.EndpointSlice{slice}, nil)
		slots := plan.Frontends[0].Route.Pool.Slots
		if len(slots) != 10000 || !slices.IsSortedFunc(slots, netip.AddrPort.Compare) {
			t.Errorf("%v: %d slots, want 10000 in order", f, len(slots))
		}
	}
}

var linkLocal = map[Family]string{IPv4: "169.254.169.254", IPv6: "fe80::1"}
