package nft

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/test/outcomes"
)

// TestTrace: what a packet meets, in the words of nft.
func TestTrace(t *testing.T) {
	s := proxy.NewState(proxy.IPv4, proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}})
	addr, endpoint := netip.MustParseAddr, netip.MustParseAddrPort
	pool := &proxy.Pool{Slots: []netip.AddrPort{endpoint("10.42.0.5:8080"), endpoint("10.42.1.5:8080")}}
	front := func(a string, r *proxy.Route) proxy.FrontendRoute {
		r.Port = proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "shop", Name: "web"}, Protocol: proxy.TCP}
		return proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: addr(a), Port: 80, Protocol: proxy.TCP}, Route: r}
	}
	s.Set(proxy.ServiceName{Namespace: "shop", Name: "web"}, &proxy.ServicePlan{
		Name: proxy.ServiceName{Namespace: "shop", Name: "web"}, ClusterIPs: []netip.Addr{addr("10.43.0.1")}, LocalEndpoints: []netip.Addr{addr("10.42.0.5")},
		Frontends: []proxy.FrontendRoute{
			front("10.43.0.1", &proxy.Route{Pool: pool, Masquerade: proxy.MasqueradeOffCluster}),
			front("203.0.113.1", &proxy.Route{Kind: proxy.LoadBalancerIP, Pool: pool, Masquerade: proxy.MasqueradeAlways, SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}),
			front("203.0.113.2", &proxy.Route{Kind: proxy.ExternalIP, Pool: &proxy.Pool{}}),
			front("203.0.113.4", &proxy.Route{Kind: proxy.ExternalIP, Pool: &proxy.Pool{Slots: pool.Slots[:1]}, Affinity: 5400}),
		},
	})
	tests := []struct{ from, to, want string }{
		{"10.42.0.5", "10.43.0.1:80", `
forwarded to 10.42.0.5:8080 masqueraded
  nat-prerouting: ip daddr . meta l4proto . th dport vmap @service-ips { 10.43.0.1 . tcp . 80 : goto lb-2 comment "shop/web" }
  lb-2: dnat to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints { 10.43.0.1 . tcp . 80 . 0x00000000 : 10.42.0.5 . 8080 }
  nat-postrouting: ct status dnat goto after-dnat
  after-dnat: ip saddr . ip daddr @hairpin { 10.42.0.5 . 10.42.0.5 } masquerade fully-random comment "a pod that reaches itself"
forwarded to 10.42.1.5:8080
  nat-prerouting: ip daddr . meta l4proto . th dport vmap @service-ips { 10.43.0.1 . tcp . 80 : goto lb-2 comment "shop/web" }
  lb-2: dnat to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints { 10.43.0.1 . tcp . 80 . 0x00000001 : 10.42.1.5 . 8080 }
  nat-postrouting: ct status dnat goto after-dnat
  after-dnat: ct original ip daddr . meta l4proto . ct original proto-dst vmap @masquerade { 10.43.0.1 . tcp . 80 : goto masquerade-off-cluster }
  masquerade-off-cluster: ip saddr 10.42.0.0/16 return
`},
		{"192.0.2.7", "10.43.0.1:81", `
rejected
  answers-forward: ct state new jump answers
  answers: ip daddr @cluster-ips { 10.43.0.1 } goto reject comment "no such port"
  reject: meta l4proto tcp reject with tcp reset
`},
		{"192.0.2.7", "203.0.113.1:80", `
dropped
  source-ranges-prerouting: ct state new ip daddr . meta l4proto . th dport @source-limited { 203.0.113.1 . tcp . 80 } ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
`},
		{"192.0.2.7", "203.0.113.2:80", `
rejected
  answers-forward: ct state new jump answers
  answers: ip daddr . meta l4proto . th dport vmap @no-endpoints { 203.0.113.2 . tcp . 80 : goto reject comment "shop/web" }
  reject: meta l4proto tcp reject with tcp reset
`},
		{"192.0.2.7", "203.0.113.3:80", "\nuntouched\n"},
		{"192.0.2.7", "203.0.113.4:80", `
forwarded to 10.42.0.5:8080
  nat-prerouting: ip daddr . meta l4proto . th dport vmap @service-ips { 203.0.113.4 . tcp . 80 : goto sticky-1 comment "shop/web" }
  sticky-1: meta priority set ip daddr . meta l4proto . th dport map @affinity-ids { 203.0.113.4 . tcp . 80 : 0000:0000 }
  sticky-1: goto lb-1
  lb-1: dnat to ip daddr . meta l4proto . th dport . numgen random mod 1 map @endpoints { 203.0.113.4 . tcp . 80 . 0x00000000 : 10.42.0.5 . 8080 }
  nat-postrouting: ct status dnat goto after-dnat
  after-dnat: ct original ip daddr . meta l4proto . ct original proto-dst vmap @affinity-timeouts { 203.0.113.4 . tcp . 80 : jump learn-5400 }
  learn-5400: meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map @affinity-ids { 203.0.113.4 . tcp . 80 : 0000:0000 }
  learn-5400: update @affinity { meta priority . ip saddr timeout 1h30m : ip daddr . th dport }
  learn-5400: meta priority set none
`},
	}
	for _, test := range tests {
		to := endpoint(test.to)
		found, err := Planned(s).Trace(t.Context(), proxy.Packet{
			From: proxy.Source{Addr: addr(test.from), Interface: "eth0"}, To: proxy.Frontend{Addr: to.Addr(), Port: to.Port(), Protocol: proxy.TCP},
		})
		if err != nil {
			t.Errorf("%s to %s: %v", test.from, test.to, err)
		}
		if diff := cmp.Diff(test.want, outcomes.Text(found, "ip sluice ")); diff != "" {
			t.Errorf("%s to %s (-want +got):\n%s", test.from, test.to, diff)
		}
	}
}
