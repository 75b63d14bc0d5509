package status

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
)

const thisNode = "here"

func newService(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	change(svc)
	return svc
}

// newSlice makes a slice of the service web. Each endpoint is an address and words:
// here or there for the node, and what is not usual about it.
func newSlice(name string, ports []discoveryv1.EndpointPort, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       ports,
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		e := discoveryv1.Endpoint{Addresses: words[:1]}
		if strings.Contains(words[0], ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		for _, w := range words[1:] {
			switch w {
			case "here", "there":
				e.NodeName = &w
			case "unready":
				e.Conditions.Ready, e.Conditions.Serving = new(false), new(false)
			case "terminating":
				e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = new(false), new(true), new(true)
			default: // a zone hint
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: w}}}
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func httpPort() []discoveryv1.EndpointPort {
	return []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}
}

func plans(svc *corev1.Service, from []*discoveryv1.EndpointSlice) []*proxy.ServicePlan {
	var plans []*proxy.ServicePlan
	for _, f := range proxy.Families {
		node := &proxy.Node{Family: f, Name: thisNode, Zone: "z1"}
		if f == proxy.IPv4 {
			node.NodePortAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		}
		plans = append(plans, proxy.PlanService(node, svc, from, nil))
	}
	return plans
}

func TestNewEndpointsUse(t *testing.T) {
	nodePort := func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
	}
	externalLocal := func(s *corev1.Service) {
		nodePort(s)
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	internalLocal := func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	tests := []struct {
		name      string
		change    func(*corev1.Service)
		endpoints []string
		want      []string // "used reason" by address
	}{
		{"ready ones", func(*corev1.Service) {}, []string{"10.42.0.1 here", "10.42.1.1 there", "10.42.1.2 there unready"},
			[]string{"yes ", "yes ", "no not ready"}},
		{"terminating beside a ready one", func(*corev1.Service) {}, []string{"10.42.0.1 here terminating", "10.42.1.1 there"},
			[]string{"no terminating", "yes "}},
		{"only terminating ones", func(*corev1.Service) {}, []string{"10.42.0.1 here terminating"}, []string{"yes "}},
		{"hints", func(*corev1.Service) {}, []string{"10.42.0.1 there z1", "10.42.1.1 there z2"},
			[]string{"yes ", "no its hints are for others"}},
		{"internalTrafficPolicy Local", internalLocal, []string{"10.42.0.1 here", "10.42.1.1 there", "10.42.2.1"},
			[]string{"yes ", "no on another node", "no on another node"}},
		{"internalTrafficPolicy Local beside a NodePort", func(s *corev1.Service) { nodePort(s); internalLocal(s) },
			[]string{"10.42.0.1 here", "10.42.1.1 there"},
			[]string{"yes ", "partly not at the ClusterIP: on another node"}},
		{"externalTrafficPolicy Local", externalLocal, []string{"10.42.0.1 here", "10.42.1.1 there", "10.42.1.2 there unready"},
			[]string{"yes ", "partly not at external addresses for others: on another node", "no not ready"}},
		{"externalTrafficPolicy Local and hints", externalLocal, []string{"10.42.0.1 here z2", "10.42.1.1 there z1"},
			[]string{
				"partly not at the ClusterIP: its hints are for others; not at external addresses for pods and this node: its hints are for others",
				"partly not at external addresses for others: on another node",
			}},
		{"the other family", func(*corev1.Service) {}, []string{"fd42::1 here"}, []string{"no the Service port has no IPv6 address"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			svc, from := newService(test.change), []*discoveryv1.EndpointSlice{newSlice("a", httpPort(), test.endpoints...)}
			var got []string
			for _, e := range NewEndpoints(svc, from, thisNode, nil, plans(svc, from)...) {
				got = append(got, string(e.Used)+" "+e.Reason)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong use (-want +got):\n%s", diff)
			}
		})
	}
}

// What another Service has is not served here, whatever this one's plan asks for.
func TestNewEndpointsOfLostAddresses(t *testing.T) {
	svc := newService(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
	})
	from := []*discoveryv1.EndpointSlice{newSlice("a", httpPort(), "10.42.0.1 here")}
	of := plans(svc, from)
	this := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Protocol: proxy.TCP}
	other := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "shop", Name: "first"}, Protocol: proxy.TCP}
	var conflicts []proxy.Conflict
	for _, f := range of[0].Frontends {
		conflicts = append(conflicts, proxy.Conflict{Frontend: f.Frontend, Holder: other, Loser: this})
	}
	for _, test := range []struct {
		lost []proxy.Conflict
		want string
		used int
	}{
		{conflicts[:1], "partly not at 10.43.0.1:80/TCP: the address belongs to shop/first", 1},
		{conflicts, "no the address belongs to shop/first", 0},
	} {
		got := NewEndpoints(svc, from, thisNode, NewLost(test.lost), of...)
		if text := string(got[0].Used) + " " + got[0].Reason; text != test.want {
			t.Errorf("got %q, want %q", text, test.want)
		}
		if counts := NewService(svc, got, of...).Endpoints; counts[0].Used != test.used || counts[0].Total != 1 {
			t.Errorf("got %+v, want %d used of 1", counts, test.used)
		}
	}
}

func TestNewServiceWithoutNodePort(t *testing.T) {
	svc := newService(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	want := []string{`port "http": it has no nodePort, and nothing allocates one here`}
	if diff := cmp.Diff(want, NewService(svc, nil, plans(svc, nil)...).NotServed); diff != "" {
		t.Errorf("wrong (-want +got):\n%s", diff)
	}
}

func TestNewEndpointsJoinsPortsAndSlices(t *testing.T) {
	svc := newService(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
	})
	dns := discoveryv1.EndpointPort{Name: new("dns"), Port: new(int32(5353)), Protocol: new(corev1.ProtocolUDP)}
	from := []*discoveryv1.EndpointSlice{
		newSlice("a", append(httpPort(), dns), "10.42.0.2 here", "10.42.0.1 here terminating"),
		newSlice("b", httpPort(), "10.42.0.1 there"), // the copy that is not terminating wins
		newSlice("c", []discoveryv1.EndpointPort{{Name: new("other"), Port: new(int32(1))}, {Port: new(int32(2))}, {Name: new("http")}}, "10.42.0.3"),
		newSlice("d", httpPort(), "not-an-address"),
	}
	got := NewEndpoints(svc, from, thisNode, nil, plans(svc, from)...)
	row := func(port, protocol, address, node string) Endpoint {
		return Endpoint{
			Namespace: "shop", Service: "web", Port: port, Protocol: protocol, Address: netip.MustParseAddrPort(address),
			Node: node, Local: node == thisNode, Ready: true, Serving: true, Used: UsedYes,
		}
	}
	terminating := row("dns", "UDP", "10.42.0.1:5353", "here")
	terminating.Ready, terminating.Terminating, terminating.Used, terminating.Reason = false, true, UsedNo, "terminating"
	want := []Endpoint{
		row("http", "TCP", "10.42.0.1:8080", "there"), row("http", "TCP", "10.42.0.2:8080", "here"),
		terminating, row("dns", "UDP", "10.42.0.2:5353", "here"),
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("wrong rows (-want +got):\n%s", diff)
	}
}

func TestNewService(t *testing.T) {
	created := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	svc := newService(func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(created)
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIPs = []string{"10.43.0.1", "fd43::1"}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
		s.Spec.Ports[0].NodePort = 30080
		s.Spec.ExternalIPs = []string{"198.51.100.1"}
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "junk"}
		s.Spec.HealthCheckNodePort = 31000
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "198.51.100.1"}, {IP: "198.51.100.2"}, {IP: "198.51.100.3", IPMode: new(corev1.LoadBalancerIPModeProxy)}, {Hostname: "x"},
		}
	})
	from := []*discoveryv1.EndpointSlice{
		newSlice("a", httpPort(), "10.42.0.1 here", "10.42.0.2 here unready", "10.42.0.3 there"),
		newSlice("b", httpPort(), "fd42::1 here terminating"),
	}
	of := plans(svc, from)
	got := NewService(svc, NewEndpoints(svc, from, thisNode, nil, of...), of...)
	want := Service{
		Namespace: "shop", Name: "web", Type: "LoadBalancer", ClusterIPs: []string{"10.43.0.1", "fd43::1"},
		ExternalIPs:           []string{"198.51.100.1", "198.51.100.2"},
		Ports:                 []ServicePort{{Name: "http", Protocol: "TCP", Port: 80, NodePort: 30080}},
		Endpoints:             []EndpointCount{{Family: proxy.IPv4, Ready: 2, Used: 2, Total: 3}, {Family: proxy.IPv6, Ready: 0, Used: 1, Total: 1}},
		InternalTrafficPolicy: "Cluster", ExternalTrafficPolicy: "Local", AffinitySeconds: 10800,
		SourceRanges: []string{"203.0.113.0/24", "junk"}, HealthCheckNodePort: 31000, Created: created,
		NotServed: of[0].Ignored,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong service (-want +got):\n%s", diff)
	}
	if len(want.NotServed) == 0 {
		t.Error("the plan says nothing of the source range that cannot be read")
	}
}

func TestNewServiceOfTheLeast(t *testing.T) {
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.1", Ports: []corev1.ServicePort{{Port: 1}}}}
	want := Service{
		Type: "ClusterIP", ClusterIPs: []string{"10.43.0.1"}, Ports: []ServicePort{{Port: 1, Protocol: "TCP"}},
		InternalTrafficPolicy: "Cluster", Endpoints: []EndpointCount{{Family: proxy.IPv4}},
	}
	if diff := cmp.Diff(want, NewService(svc, nil, nil, nil)); diff != "" {
		t.Errorf("wrong service (-want +got):\n%s", diff)
	}
}
