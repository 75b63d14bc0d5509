package proxy

import (
	"net/netip"
	"testing"
)

// TestDecide has one frontend of each sort. That packets meet what is decided is tried in test/dataplane.
func TestDecide(t *testing.T) {
	addr := netip.MustParseAddr
	ep := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	pool := func(all ...string) *Pool {
		p := &Pool{}
		for _, s := range all {
			p.Slots = append(p.Slots, ep(s))
		}
		return p
	}
	front := func(a string, port uint16) Frontend { return Frontend{addr(a), port, TCP} }
	s := NewState(IPv4, Settings{
		Detection:    Detection{Mode: DetectClusterCIDR, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
	})
	both := pool("10.42.0.5:80", "10.42.1.5:80")
	s.Set(ServiceName{"a", "web"}, &ServicePlan{
		Name: ServiceName{"a", "web"}, ClusterIPs: []netip.Addr{addr("10.43.0.1")}, LocalEndpoints: []netip.Addr{addr("10.42.0.5")},
		Frontends: []FrontendRoute{
			{front("10.43.0.1", 80), &Route{Pool: both, Masquerade: MasqueradeOffCluster}},
			{front("10.43.0.1", 81), &Route{Pool: pool()}},
			{front("192.0.2.1", 30080), &Route{Kind: NodePort, Pool: both, LocalPool: pool("10.42.0.5:80"), Masquerade: MasqueradeHost}},
			{front("192.0.2.1", 30081), &Route{Kind: NodePort, Pool: both, LocalPool: pool(), Masquerade: MasqueradeHost, WhenEmpty: Drop}},
			{front("203.0.113.1", 80), &Route{Kind: LoadBalancerIP, Pool: both, Masquerade: MasqueradeAlways,
				SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}},
		},
	})
	pod, node, outside := Source{Addr: addr("10.42.0.5")}, Source{Addr: addr("192.0.2.1"), Local: true}, Source{Addr: addr("198.51.100.7")}
	tests := []struct {
		name       string
		from       Source
		to         Frontend
		verdict    Verdict
		reason     Reason
		endpoints  int
		local      bool
		masquerade bool
	}{
		{"a pod to a ClusterIP", pod, front("10.43.0.1", 80), Forwarded, HasEndpoints, 2, false, false},
		{"the node to a ClusterIP", node, front("10.43.0.1", 80), Forwarded, HasEndpoints, 2, false, true},
		{"no endpoint", pod, front("10.43.0.1", 81), Rejected, NoEndpoint, 0, false, false},
		{"no such port", pod, front("10.43.0.1", 82), Rejected, NoSuchPort, 0, false, false},
		{"no such ClusterIP", pod, front("10.43.0.2", 80), Dropped, NoSuchClusterIP, 0, false, false},
		{"no Service", pod, front("8.8.8.8", 53), Untouched, NoService, 0, false, false},
		{"from outside to a local policy", outside, front("192.0.2.1", 30080), Forwarded, HasEndpoints, 1, true, false},
		{"a pod to a local policy", pod, front("192.0.2.1", 30080), Forwarded, HasEndpoints, 2, false, false},
		{"the node to a local policy", node, front("192.0.2.1", 30080), Forwarded, HasEndpoints, 2, false, true},
		{"from outside to a local policy without local endpoint", outside, front("192.0.2.1", 30081), Dropped, NoEndpoint, 0, true, false},
		{"an allowed source", outside, front("203.0.113.1", 80), Forwarded, HasEndpoints, 2, false, true},
		{"a source that is not allowed", pod, front("203.0.113.1", 80), Dropped, SourceRefused, 0, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := s.Decide(tt.from, tt.to)
			if d.Verdict != tt.verdict || d.Reason != tt.reason || len(d.Endpoints) != tt.endpoints || d.Local != tt.local || d.Masquerade != tt.masquerade {
				t.Errorf("got %v, reason %d, %v, local %v, masquerade %v", d.Verdict, d.Reason, d.Endpoints, d.Local, d.Masquerade)
			}
		})
	}
	d := s.Decide(pod, front("10.43.0.1", 80))
	if !s.Masquerades(&d, pod, ep("10.42.0.5:80"), false) || s.Masquerades(&d, pod, ep("10.42.1.5:80"), false) {
		t.Error("a hairpin is masqueraded, and nothing else of that pod")
	}
	d = s.Decide(outside, front("203.0.113.1", 80))
	if s.Masquerades(&d, outside, ep("192.0.2.1:80"), true) || !s.Masquerades(&d, outside, ep("10.42.1.5:80"), false) {
		t.Error("what is for this node itself is not masqueraded")
	}
}

// TestPodByInterface has sources told by where they come in.
func TestPodByInterface(t *testing.T) {
	for _, tt := range []struct {
		d    Detection
		in   string
		want bool
	}{
		{Detection{Mode: DetectBridgeInterface, Interface: "cni0"}, "cni0", true},
		{Detection{Mode: DetectBridgeInterface, Interface: "cni0"}, "cni01", false},
		{Detection{Mode: DetectBridgeInterface, Interface: "cni0"}, "", false},
		{Detection{Mode: DetectInterfaceNamePrefix, Interface: "veth"}, "veth1a", true},
		{Detection{Mode: DetectInterfaceNamePrefix, Interface: "veth"}, "eth0", false},
		{Detection{}, "cni0", false},
	} {
		if got := tt.d.pod(Source{Interface: tt.in}); got != tt.want {
			t.Errorf("%+v: %q is a pod: %v", tt.d, tt.in, got)
		}
	}
}
