package dataplane

import (
	"net/netip"
	"testing"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
)

// TestUnknownSource: of who sends only the interface may be known, or nothing. The rules do what is decided then.
func TestUnknownSource(t *testing.T) {
	addr, endpoint := netip.MustParseAddr, netip.MustParseAddrPort
	name := proxy.ServiceName{Namespace: "shop", Name: "web"}
	for _, detection := range []proxy.Detection{
		{Mode: proxy.DetectBridgeInterface, Interface: "cni0"}, {Mode: proxy.DetectInterfaceNamePrefix, Interface: "cni"},
		{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}, {},
	} {
		s := proxy.NewState(proxy.IPv4, proxy.Settings{Detection: detection})
		all, local := &proxy.Pool{Slots: []netip.AddrPort{endpoint("10.42.0.5:8080"), endpoint("10.42.1.5:8080")}}, &proxy.Pool{Slots: []netip.AddrPort{endpoint("10.42.0.5:8080")}}
		port := proxy.ServicePortName{ServiceName: name, Protocol: proxy.TCP}
		frontends := []proxy.FrontendRoute{
			{Frontend: proxy.Frontend{Addr: addr("10.43.0.1"), Port: 80, Protocol: proxy.TCP}, Route: &proxy.Route{Port: port, Pool: all, Masquerade: proxy.MasqueradeOffCluster}},
			{Frontend: proxy.Frontend{Addr: addr("192.0.2.1"), Port: 30080, Protocol: proxy.TCP}, Route: &proxy.Route{Port: port, Kind: proxy.NodePort, Pool: all, LocalPool: local, Masquerade: proxy.MasqueradeHost}},
			{Frontend: proxy.Frontend{Addr: addr("203.0.113.1"), Port: 80, Protocol: proxy.TCP}, Route: &proxy.Route{Port: port, Kind: proxy.LoadBalancerIP, Pool: all, Masquerade: proxy.MasqueradeAlways,
				SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}},
		}
		s.Set(name, &proxy.ServicePlan{Name: name, Frontends: frontends})
		for _, from := range []proxy.Source{{Interface: "cni0"}, {Interface: "?"}, {Interface: "eth0"}, {Local: true}, {Interface: "?", Addr: addr("10.42.0.9")}} {
			for _, f := range frontends {
				d := s.Decide(from, f.Frontend)
				for mode, rules := range map[string]proxy.Tracer{"nftables": nft.Planned(s), "iptables": iptables.Planned(s)} {
					outcomes, err := rules.Trace(t.Context(), proxy.Packet{From: from, To: f.Frontend})
					if err != nil {
						t.Fatal(err)
					}
					if outcomes[0].Verdict != d.Verdict || d.Verdict == proxy.Forwarded && (len(outcomes) != len(d.Endpoints) || outcomes[0].Masquerade != d.Masquerade) {
						t.Errorf("%s, %v, %+v to %v: decided %v to %d, masquerade %v; rules: %+v", mode, detection.Mode, from, f.Frontend, d.Verdict, len(d.Endpoints), d.Masquerade, outcomes)
					}
				}
			}
		}
	}
}
