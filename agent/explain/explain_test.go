package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/status"
	"sluice/proxy"
)

var webPort = proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Protocol: proxy.TCP}

// views has shop/web in IPv4, with an endpoint here, one elsewhere, and one that is not ready.
func views() []View {
	addr := netip.MustParseAddr
	s := proxy.NewState(proxy.IPv4, proxy.Settings{
		Detection:    proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
	})
	here, there := netip.MustParseAddrPort("10.42.0.5:8080"), netip.MustParseAddrPort("10.42.1.5:8080")
	all, local := &proxy.Pool{Slots: []netip.AddrPort{there, here}}, &proxy.Pool{Slots: []netip.AddrPort{here}}
	front := func(a string, port uint16, r *proxy.Route) proxy.FrontendRoute {
		r.Port = webPort
		return proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: addr(a), Port: port, Protocol: proxy.TCP}, Route: r}
	}
	nodePort := &proxy.Route{Kind: proxy.NodePort, Pool: all, LocalPool: local, Masquerade: proxy.MasqueradeHost, Affinity: 60}
	s.Set(webPort.ServiceName, &proxy.ServicePlan{
		Name: webPort.ServiceName, ClusterIPs: []netip.Addr{addr("10.43.0.1")}, LocalEndpoints: []netip.Addr{here.Addr()},
		Frontends: []proxy.FrontendRoute{
			front("10.43.0.1", 80, &proxy.Route{Pool: all, Masquerade: proxy.MasqueradeOffCluster}),
			front("203.0.113.1", 80, &proxy.Route{Kind: proxy.LoadBalancerIP, Pool: all, Masquerade: proxy.MasqueradeAlways,
				SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}),
			front("192.0.2.1", 30080, nodePort), front("192.0.2.9", 30080, nodePort),
		},
	})
	return []View{{&proxy.Node{Family: proxy.IPv4, Name: "here", Addrs: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.9")}}, s, Rules{}}}
}

func lookup(proxy.ServiceName) (status.Service, []status.Endpoint) {
	endpoint := func(a, node string, ready bool) status.Endpoint {
		return status.Endpoint{Port: "http", Protocol: "TCP", Address: netip.MustParseAddrPort(a), Node: node, Local: node == "here", Ready: ready, Serving: ready}
	}
	return status.Service{InternalTrafficPolicy: "Cluster"}, []status.Endpoint{
		endpoint("10.42.0.5:8080", "here", true), endpoint("10.42.0.6:8080", "here", false), endpoint("10.42.1.5:8080", "there", true),
	}
}

func TestExplain(t *testing.T) {
	const clusterIP = `
10.43.0.1:80/TCP (shop/web:http, ClusterIP)
  from a pod (any in 10.42.0.0/16)
  forwarded: to one of 2 endpoints, each with the same chance
    10.42.0.5:8080  here   source kept: the client is a pod
    10.42.1.5:8080  there  source kept: the client is a pod
  not to
    10.42.0.6:8080  here  not ready
`
	const nodePort = `
192.0.2.1:30080/TCP, 192.0.2.9:30080/TCP (shop/web:http, NodePort)
  from outside the cluster
  forwarded: to the only endpoint, as the traffic policy Local keeps it on this node
  a client keeps its endpoint for 60 s after its last new connection (sessionAffinity ClientIP)
    10.42.0.5:8080  here  source kept: the traffic policy Local keeps it
  not to
    10.42.0.6:8080  here   not ready
    10.42.1.5:8080  there  on another node
`
	const loadBalancer = `
203.0.113.1:80/TCP (shop/web:http, LoadBalancerIP)
  from outside the cluster
  dropped: loadBalancerSourceRanges lets in 198.51.100.0/24 only; name an address by --from to see what becomes of it
`
	tests := []struct{ target, from, proto, want string }{
		{"shop/web", "", "", clusterIP + loadBalancer + nodePort},
		{"web:30080", "", "", nodePort},
		{"10.43.0.1:80", "", "tcp", clusterIP},
		{"here:30080", "", "", nodePort},
		{"10.43.0.1", "10.42.0.5", "", `
10.43.0.1:80/TCP (shop/web:http, ClusterIP)
  from 10.42.0.5 (a pod)
  forwarded: to one of 2 endpoints, each with the same chance
    10.42.0.5:8080  here   source replaced by this node's: it is the client itself
    10.42.1.5:8080  there  source kept: the client is a pod
  not to
    10.42.0.6:8080  here  not ready
`},
		{"192.0.2.9:30080", "host", "", `
192.0.2.9:30080/TCP (shop/web:http, NodePort)
  from this node (as 192.0.2.1)
  forwarded: to one of 2 endpoints, each with the same chance
  a client keeps its endpoint for 60 s after its last new connection (sessionAffinity ClientIP)
    10.42.0.5:8080  here   source replaced by this node's: the client is this node
    10.42.1.5:8080  there  source replaced by this node's: the client is this node
  not to
    10.42.0.6:8080  here  not ready
`},
		{"10.43.0.1:81", "", "", `
10.43.0.1:81/TCP (no Service)
  from a pod (any in 10.42.0.0/16)
  rejected: 10.43.0.1 is a Service's ClusterIP, and the Service has no such port
`},
		{"10.43.0.2:80", "", "udp", `
10.43.0.2:80/UDP (no Service)
  from a pod (any in 10.42.0.0/16)
  dropped: 10.43.0.2 is in a range of ClusterIPs (ServiceCIDR), and no Service has it
`},
		{"192.0.2.1:22", "198.51.100.7", "", `
192.0.2.1:22/TCP (no Service)
  from 198.51.100.7
  untouched: no Service has this port at this node's address: whatever listens on the node answers
`},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			answers, err := Explain(t.Context(), status.Question{Target: tt.target, From: tt.from, Protocol: tt.proto}, views(), lookup)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			paths := Block(answers, func(proxy.Passage) ([]proxy.Block, error) { return nil, nil })
			if err := status.WritePaths(&b, paths); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want[1:], b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
	// An endpoint leads to all frontends that lead to it.
	if paths, err := Explain(t.Context(), status.Question{Target: "10.42.1.5"}, views(), lookup); err != nil || len(paths) != 3 {
		t.Errorf("%+v, %v", paths, err)
	}
}

// TestTooMany: a Service with more ports than can be explained at a time is to be asked about port by port.
func TestTooMany(t *testing.T) {
	all := views()
	plan := &proxy.ServicePlan{Name: proxy.ServiceName{Namespace: "shop", Name: "huge"}}
	for i := range uint16(maxAnswers + 1) {
		plan.Frontends = append(plan.Frontends, proxy.FrontendRoute{
			Frontend: proxy.Frontend{Addr: netip.MustParseAddr("10.43.0.7"), Port: i + 1, Protocol: proxy.TCP},
			Route:    &proxy.Route{Port: proxy.ServicePortName{ServiceName: plan.Name, Port: fmt.Sprint("p", i), Protocol: proxy.TCP}, Pool: &proxy.Pool{}},
		})
	}
	all[0].State.Set(plan.Name, plan)
	if _, err := Explain(t.Context(), status.Question{Target: "huge"}, all, lookup); err == nil || !strings.Contains(err.Error(), "huge is at 257 addresses and ports here") {
		t.Error(err)
	}
	if answers, err := Explain(t.Context(), status.Question{Target: "huge:200"}, all, lookup); err != nil || len(answers) != 1 {
		t.Error(answers, err)
	}
}

// TestLoser: who asks about a Service hears that another has one of its addresses, and so does who asks about that.
func TestLoser(t *testing.T) {
	all := views()
	loser := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "shop", Name: "younger"}, Protocol: proxy.TCP}
	all[0].State.Set(loser.ServiceName, &proxy.ServicePlan{Name: loser.ServiceName, Created: 1, Frontends: []proxy.FrontendRoute{{
		Frontend: proxy.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 30080, Protocol: proxy.TCP},
		Route:    &proxy.Route{Port: loser, Kind: proxy.NodePort, Pool: &proxy.Pool{}},
	}}})
	for target, said := range map[string]int{"younger": 1, "web:30080": 1, "10.43.0.1:80": 0} {
		answers, err := Explain(t.Context(), status.Question{Target: target}, all, lookup)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := status.WritePaths(&b, Block(answers, func(proxy.Passage) ([]proxy.Block, error) { return nil, nil })); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "claimed in vain by shop/younger: ") != said || !strings.Contains(b.String(), "(shop/web:http, ") {
			t.Errorf("%s:\n%s", target, b.String())
		}
	}
}

func TestBadQuestions(t *testing.T) {
	all := views()
	huge := proxy.ServiceName{Namespace: "shop", Name: "huge"}
	all[0].State.Set(huge, &proxy.ServicePlan{Name: huge, Ignored: []string{"nothing of it is served, as there is no memory"}})
	for _, tt := range []struct{ target, from, proto, want string }{
		{"nosuch", "", "", "no Service nosuch"},
		{"other/web", "", "", "no Service other/web"},
		{"web:81", "", "", "no such port or protocol here: web has 30080/TCP (http), 80/TCP (http)"},
		{"shop/web", "", "udp", "no such port or protocol here: shop/web has 30080/TCP (http), 80/TCP (http)"},
		{"here:30081", "", "", "no Service has the NodePort 30081 here"},
		{"huge", "", "", "shop/huge: nothing of it is served"},
		{"there:30080", "", "", "no Service there:30080"},
		{"10.43.0.1:70000", "", "", `"70000" is no port`},
		{"a/b/c", "", "", "neither"},
		{"web:", "", "", "neither"},
		{"", "", "", "neither"},
		{"10.42.9.9", "", "", "with a port"},
		{"[fd00::1]:80", "", "", "no IPv6"},
		{"web", "mars", "", `"mars" is no sender`},
		{"web", "fd00::1", "", "cannot send"},
		{"web", "", "icmp", "none of tcp"},
	} {
		_, err := Explain(t.Context(), status.Question{Target: tt.target, From: tt.from, Protocol: tt.proto}, all, lookup)
		if _, ok := err.(*status.QuestionError); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
