package nodeaddr

import (
	"net/netip"
	"testing"

	"sluice/proxy"
)

func TestPrimary(t *testing.T) {
	ip, prefix := netip.MustParseAddr, netip.MustParsePrefix
	eth0, wlan0, cni0 := link{name: "eth0", up: true}, link{name: "wlan0", up: true}, link{name: "cni0", up: true, virtual: true}
	on := func(l link, index uint32, cidr string) address {
		p := prefix(cidr)
		return address{Address: Address{l.name, p.Addr()}, prefix: p.Masked(), link: l, index: index, lasting: true}
	}
	fleeting := func(a address) address { a.lasting = false; return a }
	addrs := []address{
		on(cni0, 4, "10.42.0.1/24"),
		on(eth0, 2, "192.168.1.5/24"), on(eth0, 2, "172.16.0.5/16"),
		on(wlan0, 3, "192.168.7.5/24"),
		fleeting(on(eth0, 2, "2001:db8::aaaa/64")), on(eth0, 2, "2001:db8::5/64"),
	}
	gw := func(metric, index uint32, gateway string) route {
		return route{family: proxy.IPv4, metric: metric, index: index, gateway: ip(gateway)}
	}
	for _, tc := range []struct {
		name   string
		addrs  []address
		routes []route
		v4, v6 string
	}{
		{"no addresses", nil, []route{gw(0, 2, "192.168.1.1")}, "", ""},
		{"no default route: no bridge, no temporary address", addrs, nil, "192.168.1.5", "2001:db8::5"},
		{"only a bridge", addrs[:1], nil, "", ""},
		{"the lowest metric", addrs, []route{gw(600, 2, "192.168.1.1"), gw(100, 3, "192.168.7.1")}, "192.168.7.5", "2001:db8::5"},
		{"the gateway's subnet", addrs, []route{gw(0, 2, "172.16.0.1")}, "172.16.0.5", "2001:db8::5"},
		{"a gateway in no subnet", addrs, []route{gw(0, 3, "100.64.0.1")}, "192.168.7.5", "2001:db8::5"},
		{"no gateway", addrs, []route{{family: proxy.IPv4, index: 3}}, "192.168.7.5", "2001:db8::5"},
		{"a preferred source", addrs, []route{{family: proxy.IPv4, index: 3, gateway: ip("192.168.7.1"), source: ip("172.16.0.5")}}, "172.16.0.5", "2001:db8::5"},
		{"a preferred source that is gone", addrs, []route{{family: proxy.IPv4, index: 3, source: ip("1.2.3.4")}, gw(9, 3, "192.168.7.1")}, "192.168.7.5", "2001:db8::5"},
		{"a route through a bridge", addrs, []route{gw(0, 4, "10.42.0.254")}, "10.42.0.1", "2001:db8::5"},
		{"IPv6 with a link-local gateway", addrs, []route{{family: proxy.IPv6, index: 2, gateway: ip("fe80::1")}}, "192.168.1.5", "2001:db8::5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := newFacts(tc.addrs, tc.routes)
			for f, want := range map[proxy.Family]string{proxy.IPv4: tc.v4, proxy.IPv6: tc.v6} {
				got := facts.Primary(f)
				if want == "" && got.IsValid() || want != "" && got != ip(want) {
					t.Errorf("Primary(%s) = %s, want %q", f, got, want)
				}
			}
		})
	}
}
