package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
)

func endpoints(n int) []netip.AddrPort {
	var list []netip.AddrPort
	for i := range n {
		list = append(list, netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", i/100, i%100+1)))
	}
	return list
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func TestRouteChains(t *testing.T) {
	port := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "default", Name: "web"}, Protocol: proxy.TCP}
	vip := frontend("10.96.0.1:80", proxy.TCP)
	settings := proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: prefixes("10.244.0.0/16", "fd00::/48")}}
	svc, ext, ins, rng := portChain(internalChain, port), portChain(externalChain, port), portChain(insideChain, port), rangesName(vip)
	tests := []struct {
		name  string
		route proxy.Route
		want  string
	}{
		{"ClusterIP", proxy.Route{Pool: &proxy.Pool{Slots: endpoints(3)}, Masquerade: proxy.MasqueradeOffCluster}, `
-A SVC -j SLUICE-OFF-CLUSTER
-A SVC -p tcp -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.244.0.1:8080
-A SVC -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.0.2:8080
-A SVC -p tcp -j DNAT --to-destination 10.244.0.3:8080
`},
		{"affinity", proxy.Route{Pool: &proxy.Pool{Slots: endpoints(2), AffinityID: 0xab}, Affinity: 60}, `
-A SVC -p tcp -m recent --update --seconds 60 --reap --name sluice-000000ab-10.244.0.1:8080 --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.244.0.1:8080
-A SVC -p tcp -m recent --update --seconds 60 --reap --name sluice-000000ab-10.244.0.2:8080 --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.244.0.2:8080
-A SVC -p tcp -m statistic --mode random --probability 0.50000000000 -m recent --set --name sluice-000000ab-10.244.0.1:8080 --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.244.0.1:8080
-A SVC -p tcp -m recent --set --name sluice-000000ab-10.244.0.2:8080 --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.244.0.2:8080
`},
		{"NodePort", proxy.Route{Kind: proxy.NodePort, Pool: &proxy.Pool{Slots: endpoints(1)}, Masquerade: proxy.MasqueradeAlways}, `
-A EXT -j MARK --set-xmark 0x4000/0x4000
-A EXT -p tcp -j DNAT --to-destination 10.244.0.1:8080
`},
		{"externalTrafficPolicy Local", proxy.Route{Kind: proxy.NodePort, Pool: &proxy.Pool{Slots: endpoints(2)}, LocalPool: &proxy.Pool{Slots: endpoints(1)}, Masquerade: proxy.MasqueradeHost}, `
-A INS -m addrtype --src-type LOCAL -j MARK --set-xmark 0x4000/0x4000
-A INS -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.0.1:8080
-A INS -p tcp -j DNAT --to-destination 10.244.0.2:8080
-A EXT -s 10.244.0.0/16 -g INS
-A EXT -m addrtype --src-type LOCAL -g INS
-A EXT -p tcp -j DNAT --to-destination 10.244.0.1:8080
`},
		{"source ranges", proxy.Route{Kind: proxy.LoadBalancerIP, Pool: &proxy.Pool{Slots: endpoints(1)}, SourceRanges: prefixes("192.168.0.0/24", "192.168.7.1/32"), Masquerade: proxy.MasqueradeAlways}, `
-A EXT -j MARK --set-xmark 0x4000/0x4000
-A EXT -p tcp -j DNAT --to-destination 10.244.0.1:8080
-A RNG -s 192.168.0.0/24 -g EXT
-A RNG -s 192.168.7.1/32 -g EXT
`},
		{"source ranges, no endpoint", proxy.Route{Kind: proxy.LoadBalancerIP, Pool: &proxy.Pool{}, SourceRanges: prefixes("192.168.0.0/24")}, `
-A RNG -s 192.168.0.0/24 -g SLUICE-REJECT
-A RNG -j DROP
`},
		{"no endpoint", proxy.Route{Pool: &proxy.Pool{}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rs := newRuleset(proxy.IPv4, true)
			rs.settings = settings
			tt.route.Port = port
			var b strings.Builder
			rs.routeChains(&chain{family: proxy.IPv4}, vip, &tt.route, func(c *chain) { b.Write(c.text) })
			got := strings.NewReplacer(svc, "SVC", ext, "EXT", ins, "INS", rng, "RNG").Replace(b.String())
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSpread checks that each of many endpoints has the same chance, and that a client passes tens of rules.
func TestSpread(t *testing.T) {
	port := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "default", Name: "web"}, Protocol: proxy.TCP}
	for _, n := range []int{1, 2, 16, 17, 100, 256, 257, 1000} {
		m := modelKernel{}
		rs := newRuleset(proxy.IPv4, true)
		pool := &proxy.Pool{Slots: endpoints(n)}
		rs.routeChains(&chain{}, proxy.Frontend{}, &proxy.Route{Port: port, Pool: pool}, func(c *chain) {
			if len(c.name) > maxChainName {
				t.Errorf("the name %s is too long", c.name)
			}
			m["nat "+c.name] = strings.Split(strings.TrimSuffix(string(c.text), "\n"), "\n")
		})
		chances := map[string]float64{}
		most := m.chances(portChain(internalChain, port), 1, 0, chances)
		if len(chances) != n {
			t.Errorf("%d of %d endpoints are reached", len(chances), n)
		}
		for e, chance := range chances {
			if chance < 0.999/float64(n) || chance > 1.001/float64(n) {
				t.Errorf("of %d endpoints %s has the chance %g", n, e, chance)
			}
		}
		if n > 16 && most > 3*maxRules {
			t.Errorf("to one of %d endpoints a client passes %d rules", n, most)
		}
	}
}

// chances adds up the chance of each endpoint behind a chain, and returns the most rules on the way to one.
func (m modelKernel) chances(chain string, chance float64, passed int, all map[string]float64) (most int) {
	for _, rule := range m["nat "+chain] {
		passed++
		here := chance
		if text, ok := argument(rule, " --probability "); ok {
			var p float64
			fmt.Sscan(text, &p)
			here = chance * p
		}
		chance -= here
		if to, ok := argument(rule, " -g "); ok {
			most = max(most, m.chances(to, here, passed, all))
		} else if to, ok := argument(rule, " --to-destination "); ok {
			all[to] += here
			most = max(most, passed)
		}
	}
	return most
}

func TestComment(t *testing.T) {
	c := &chain{}
	c.begin(nat, "X")
	c.rule().comment("a/b:\"c\"\n\\é" + strings.Repeat("x", 300)).jump("RETURN")
	got := string(c.text)
	if want := `-A X -m comment --comment "a/b:?c?????x`; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
	if len(got) > 255 || strings.Count(got, "\n") != 1 {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
