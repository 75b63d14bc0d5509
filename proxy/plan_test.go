package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const mixedEndpoints = "pod1 pod2@here pod3,draining"

func loadBalancer(f Family, svc *corev1.Service) {
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.Ports[0].NodePort = 30080
	svc.Spec.ExternalIPs = []string{ip(f, "ext1")}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip(f, "lb1")}}
}

func externalPolicyLocal(_ Family, svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalPolicyLocal(_ Family, svc *corev1.Service) {
	svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

type change = func(Family, *corev1.Service)

func TestPlanService(t *testing.T) {
	for _, tc := range []struct {
		name      string
		endpoints string
		node      func(*Node)
		changes   []change
		want      string
	}{
		{
			name: "ClusterIP", endpoints: mixedEndpoints,
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] masquerade off-cluster empty reject others [pod3:8080]
cluster IPs [cluster1]
local endpoints [pod2]
`},
		{
			name: "masqueradeAll", endpoints: "pod1", node: func(n *Node) { n.MasqueradeAll = true },
			changes: []change{loadBalancer, externalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
ExternalIP ext1:80/TCP shop/web:http -> [pod1:8080] local [] masquerade host empty drop
LoadBalancerIP lb1:80/TCP shop/web:http -> [pod1:8080] local [] masquerade host empty drop
NodePort node1:30080/TCP shop/web:http -> [pod1:8080] local [] masquerade host empty drop
cluster IPs [cluster1]
`},
		{
			name: "no endpoints", endpoints: "", changes: []change{loadBalancer, externalPolicyLocal, internalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [] masquerade off-cluster empty reject
ExternalIP ext1:80/TCP shop/web:http -> [] local [] masquerade host empty reject
LoadBalancerIP lb1:80/TCP shop/web:http -> [] local [] masquerade host empty reject
NodePort node1:30080/TCP shop/web:http -> [] local [] masquerade host empty reject
cluster IPs [cluster1]
`},
		{
			name: "all kinds, policy Cluster", endpoints: mixedEndpoints, changes: []change{loadBalancer},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] masquerade off-cluster empty reject others [pod3:8080]
ExternalIP ext1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] masquerade always empty reject others [pod3:8080]
LoadBalancerIP lb1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] masquerade always empty reject others [pod3:8080]
NodePort node1:30080/TCP shop/web:http -> [pod1:8080 pod2:8080] masquerade always empty reject others [pod3:8080]
cluster IPs [cluster1]
local endpoints [pod2]
`},
		{
			name: "all kinds, external policy Local", endpoints: mixedEndpoints,
			changes: []change{loadBalancer, externalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] masquerade off-cluster empty reject others [pod3:8080]
ExternalIP ext1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] local [pod2:8080] masquerade host empty drop others [pod3:8080]
LoadBalancerIP lb1:80/TCP shop/web:http -> [pod1:8080 pod2:8080] local [pod2:8080] masquerade host empty drop others [pod3:8080]
NodePort node1:30080/TCP shop/web:http -> [pod1:8080 pod2:8080] local [pod2:8080] masquerade host empty drop others [pod3:8080]
cluster IPs [cluster1]
local endpoints [pod2]
`},
		{
			name: "internal policy Local", endpoints: mixedEndpoints, changes: []change{internalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod2:8080] masquerade off-cluster empty drop others [pod1:8080 pod3:8080]
cluster IPs [cluster1]
local endpoints [pod2]
`},
		{
			name: "internal policy Local, external policy Cluster", endpoints: "pod1", changes: []change{loadBalancer, internalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [] masquerade off-cluster empty drop others [pod1:8080]
ExternalIP ext1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
LoadBalancerIP lb1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
NodePort node1:30080/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
cluster IPs [cluster1]
`},
		{
			name: "policy Local, only a draining endpoint elsewhere", endpoints: "pod1,draining",
			changes: []change{internalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [] masquerade off-cluster empty drop others [pod1:8080]
cluster IPs [cluster1]
`},
		{
			name: "policy Local, none usable anywhere", endpoints: "pod1,notready", changes: []change{internalPolicyLocal},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [] masquerade off-cluster empty reject others [pod1:8080]
cluster IPs [cluster1]
`},
		{
			name: "external policy of a Service that nothing outside can reach", endpoints: "pod1",
			changes: []change{externalPolicyLocal, func(f Family, svc *corev1.Service) {
				svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip(f, "lb1")}}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
LoadBalancerIP lb1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
cluster IPs [cluster1]
`},
		{
			name: "a ClusterIP Service that has a nodePort yet", endpoints: "pod1",
			changes: []change{func(_ Family, svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30080 }},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
NodePort node1:30080/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
cluster IPs [cluster1]
`},
		{
			name: "NodePort at several addresses", endpoints: "pod1",
			node: func(n *Node) { n.NodePortAddrs = ipAddrs(n.Family, "node1 node2") },
			changes: []change{func(_ Family, svc *corev1.Service) {
				svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
NodePort node1:30080/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
NodePort node2:30080/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
cluster IPs [cluster1]
`},
		{
			name: "load balancer: mode Proxy, no mode, a host name", endpoints: "pod1",
			changes: []change{func(f Family, svc *corev1.Service) {
				svc.Spec.Type = corev1.ServiceTypeLoadBalancer
				svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
					{IP: ip(f, "lb1"), IPMode: new(corev1.LoadBalancerIPModeProxy)},
					{IP: ip(f, "lb2"), IPMode: new(corev1.LoadBalancerIPModeVIP)},
					{IP: ip(f, "lb3")},
					{Hostname: "lb.example.com"},
					{IP: ip(IPv4+IPv6-f, "lb4")},
				}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
LoadBalancerIP lb2:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
LoadBalancerIP lb3:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
cluster IPs [cluster1]
`},
		{
			name: "one address as externalIP and VIP is restricted as a VIP", endpoints: "pod1",
			changes: []change{loadBalancer, func(f Family, svc *corev1.Service) {
				svc.Spec.ExternalIPs = []string{ip(f, "lb1"), ip(f, "lb1"), ip(f, "cluster1"), ip(f, "node1")}
				svc.Spec.Ports[0].NodePort = 80
				svc.Spec.LoadBalancerSourceRanges = []string{ip(f, "ext9") + "/32"}
				if f == IPv6 {
					svc.Spec.LoadBalancerSourceRanges[0] = ip(f, "ext9") + "/128"
				}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
ExternalIP node1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
LoadBalancerIP lb1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject from [ext9/HOST]
cluster IPs [cluster1]
`},
		{
			name: "externalIPs that are none", endpoints: "pod1",
			changes: []change{func(f Family, svc *corev1.Service) {
				svc.Spec.ExternalIPs = []string{"", "web.example.com", ip(IPv4+IPv6-f, "ext1"), f.loopback().String()}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
cluster IPs [cluster1]
ignored: externalIPs: "web.example.com" is not an IP address
ignored: externalIPs: LOOPBACK is not an address that can be served
`},
		{
			name: "affinity", endpoints: "pod1",
			changes: []change{func(_ Family, svc *corev1.Service) {
				svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject affinity 60
cluster IPs [cluster1]
`},
		{
			name: "affinity without a timeout", endpoints: "pod1",
			changes: []change{func(_ Family, svc *corev1.Service) { svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject affinity 10800
cluster IPs [cluster1]
`},
		{
			name: "affinity longer than allowed", endpoints: "pod1",
			changes: []change{func(_ Family, svc *corev1.Service) {
				svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(1 << 30))}}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject affinity 86400
cluster IPs [cluster1]
`},
		{
			name: "several ports and protocols", endpoints: "pod1",
			changes: []change{func(_ Family, svc *corev1.Service) {
				svc.Spec.Ports = append(svc.Spec.Ports,
					corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
					corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolSCTP, Port: 80},
					corev1.ServicePort{Name: "quic", Protocol: "QUIC", Port: 81},
					corev1.ServicePort{Name: "zero", Protocol: corev1.ProtocolTCP},
					corev1.ServicePort{Name: "big", Port: 70000},
					corev1.ServicePort{Name: "np", Port: 82, NodePort: 70000})
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
ClusterIP cluster1:53/UDP shop/web:dns -> [] masquerade off-cluster empty reject
ClusterIP cluster1:80/SCTP shop/web:http -> [] masquerade off-cluster empty reject
ClusterIP cluster1:82/TCP shop/web:np -> [] masquerade off-cluster empty reject
cluster IPs [cluster1]
ignored: port "quic": protocol "QUIC"; TCP, UDP and SCTP are served
ignored: port "zero": 0 is outside 1-65535
ignored: port "big": 70000 is outside 1-65535
ignored: port "np": nodePort 70000 is outside 1-65535
`},
		{
			name: "clusterIP is this node's own address", endpoints: "pod1",
			changes: []change{func(f Family, svc *corev1.Service) { svc.Spec.ClusterIPs[0] = ip(f, "node1") }},
			want: `
ClusterIP node1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
ignored: clusterIP node1 is an address of this node: ports that are not the Service's are left to the node
`},
		{
			name: "clusterIP cannot be served", endpoints: "pod1",
			changes: []change{func(f Family, svc *corev1.Service) {
				svc.Spec.ClusterIPs[0], svc.Spec.ExternalIPs = f.loopback().String(), []string{ip(f, "ext1")}
			}},
			want: `
ExternalIP ext1:80/TCP shop/web:http -> [pod1:8080] masquerade always empty reject
ignored: clusterIP: LOOPBACK is not an address that can be served
`},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				n, svc := testNode(f), testService(f)
				if tc.node != nil {
					tc.node(n)
				}
				for _, change := range tc.changes {
					change(f, svc)
				}
				got := describe(f, PlanService(n, svc, []*discoveryv1.EndpointSlice{testSlice(f, "a", tc.endpoints)}, nil))
				if diff := cmp.Diff(tc.want[1:], got); diff != "" {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestNotServed(t *testing.T) {
	for name, change := range map[string]change{
		"another proxy's": func(_ Family, svc *corev1.Service) {
			svc.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""}
		},
		"headless": func(_ Family, svc *corev1.Service) {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "None", []string{"None"}
		},
		"ExternalName": func(_ Family, svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeExternalName },
		"no clusterIP": func(_ Family, svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil },
		"other family": func(f Family, svc *corev1.Service) { svc.Spec.IPFamilies[0] = familyName(IPv4 + IPv6 - f) },
		"unallocated":  func(_ Family, svc *corev1.Service) { svc.Spec.ClusterIPs[0] = "" },
		"one IP of two": func(f Family, svc *corev1.Service) {
			svc.Spec.IPFamilies = []corev1.IPFamily{familyName(IPv4 + IPv6 - f), familyName(f)}
		},
		"other family, families not named": func(f Family, svc *corev1.Service) {
			svc.Spec.IPFamilies, svc.Spec.ClusterIPs = nil, []string{ip(IPv4+IPv6-f, "cluster1")}
		},
	} {
		for _, f := range Families {
			svc := testService(f)
			change(f, svc)
			if got := describe(f, PlanService(testNode(f), svc, nil, nil)); got != "not served\n" {
				t.Errorf("%s, %v: planned:\n%s", name, f, got)
			}
		}
	}
}

func TestClusterIPOfFamily(t *testing.T) {
	both := func(svc *corev1.Service) {
		svc.Spec.ClusterIPs = []string{ip(IPv4, "cluster1"), ip(IPv6, "cluster2")}
		svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	for name, change := range map[string]func(*corev1.Service){
		"both":                both,
		"families not named":  func(svc *corev1.Service) { both(svc); svc.Spec.IPFamilies = nil },
		"leading zeros":       func(svc *corev1.Service) { both(svc); svc.Spec.ClusterIPs[0] = "10.096.000.01" },
		"IPv4 written as v6":  func(svc *corev1.Service) { both(svc); svc.Spec.ClusterIPs[0] = "::ffff:10.96.0.1" },
		"IPv6 in another way": func(svc *corev1.Service) { both(svc); svc.Spec.ClusterIPs[1] = "FD00:0096:0::0002" },
	} {
		svc := testService(IPv4)
		change(svc)
		for f, want := range map[Family]string{IPv4: "cluster1", IPv6: "cluster2"} {
			plan := PlanService(testNode(f), svc, nil, nil)
			if diff := cmp.Diff(ipAddrs(f, want), plan.ClusterIPs, compareAddrs); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", name, f, diff)
			}
		}
	}
	svc := testService(IPv4)
	svc.Spec.ClusterIPs = nil // objects of old API servers
	if plan := PlanService(testNode(IPv4), svc, nil, nil); plan == nil || len(plan.ClusterIPs) != 1 {
		t.Error("a Service with clusterIP and no clusterIPs is not served")
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
			if len(plan.Localhost) != 1 || plan.Localhost[0].Frontend != (Frontend{f.loopback(), 30080, TCP}) {
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

func TestCreated(t *testing.T) {
	svc := testService(IPv4)
	if plan := PlanService(testNode(IPv4), svc, nil, nil); plan.Created != 0 {
		t.Errorf("without creationTimestamp: %d, want 0", plan.Created)
	}
	svc.CreationTimestamp = metav1.NewTime(time.Unix(1234567890, 5))
	if plan := PlanService(testNode(IPv4), svc, nil, nil); plan.Created != 1234567890 {
		t.Errorf("created %d, want 1234567890", plan.Created)
	}
}

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
