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
			name: "a local endpoint that no pool has", endpoints: "pod1,zone=zone-a pod2@here,zone=zone-b",
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject others [pod2:8080]
cluster IPs [cluster1]
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
				svc.Spec.ExternalIPs = []string{"", "web.example.com", "fe80::1%eth0", ip(IPv4+IPv6-f, "ext1"), f.Loopback().String()}
			}},
			want: `
ClusterIP cluster1:80/TCP shop/web:http -> [pod1:8080] masquerade off-cluster empty reject
cluster IPs [cluster1]
ignored: externalIPs: "web.example.com" is not an IP address
ignored: externalIPs: "fe80::1%eth0" is not an IP address
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
			name: "affinity with a timeout of 0", endpoints: "pod1",
			changes: []change{func(_ Family, svc *corev1.Service) {
				svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(0))}}
			}},
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
ignored: port "dns": none of its EndpointSlices has a port of that name for UDP
ignored: port "http": none of its EndpointSlices has a port of that name for SCTP
ignored: port "quic": protocol "QUIC"; TCP, UDP and SCTP are served
ignored: port "zero": 0 is outside 1-65535
ignored: port "big": 70000 is outside 1-65535
ignored: port "np": none of its EndpointSlices has a port of that name for TCP
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
				svc.Spec.ClusterIPs[0], svc.Spec.ExternalIPs = f.Loopback().String(), []string{ip(f, "ext1")}
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

// TestMaxPairs: a Service that asks for more than one may have keeps what came first, and says so; others are as they were.
func TestMaxPairs(t *testing.T) {
	for _, f := range Families {
		svc := testService(f)
		svc.Spec.Ports = nil
		for i := range 300 {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1 + i), Protocol: corev1.ProtocolTCP})
		}
		var slices []*discoveryv1.EndpointSlice
		for k := range 3 {
			s := testSlice(f, fmt.Sprint("s", k), "pod1")
			s.Endpoints, s.Ports = nil, nil
			for i := range 300 {
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Port: new(int32(8000)), Protocol: new(corev1.ProtocolTCP)})
			}
			for i := range 1000 {
				a := netip.MustParseAddr(ip(f, "pod1")).AsSlice()
				a[len(a)-1], a[len(a)-2] = byte(i), byte(k*4+i/256)
				addr, _ := netip.AddrFromSlice(a)
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr.String()}})
			}
			slices = append(slices, s)
		}
		plan := PlanService(testNode(f), svc, slices, nil)
		pairs := 0
		for _, fr := range plan.Frontends {
			pairs += 1 + len(fr.Route.Pool.Slots)
		}
		if want := MaxPairs / 3001; len(plan.Frontends) != want || pairs > MaxPairs {
			t.Errorf("%v: %d frontends, want %d, %d pairs", f, len(plan.Frontends), want, pairs)
		}
		if len(plan.Ignored) != 1 || !strings.HasPrefix(plan.Ignored[0], "217 of its ports are not served") {
			t.Errorf("%v: %q", f, plan.Ignored)
		}
	}
}
