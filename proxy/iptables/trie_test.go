package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
)

// testTrie is a trie of services with routes that lead to nothing else.
func testTrie(frontends ...proxy.Frontend) *trie {
	t := &newRuleset(proxy.IPv4, true).tries[services]
	for _, f := range frontends {
		t.entries = append(t.entries, entry{f, &proxy.Route{Port: proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "ns", Name: f.String()}, Protocol: f.Protocol}}})
	}
	t.sort()
	return t
}

func frontend(s string, p proxy.Protocol) proxy.Frontend {
	a := netip.MustParseAddrPort(s)
	return proxy.Frontend{Addr: a.Addr(), Port: a.Port(), Protocol: p}
}

// listing is the trie's chains without comments and targets of leaves.
func listing(t *trie) string {
	var b strings.Builder
	c := &chain{}
	t.all(t.rootNode(), func(n node) {
		t.render(c, n)
		for line := range strings.Lines(string(c.text)) {
			line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " -m comment")
			fmt.Fprintln(&b, strings.TrimPrefix(line, "-A "))
		}
	})
	return b.String()
}

func TestTrie(t *testing.T) {
	var vips, nodePorts []proxy.Frontend
	for i := range 20 {
		vips = append(vips, frontend(fmt.Sprintf("10.96.%d.1:80", i*6), proxy.TCP))
		nodePorts = append(nodePorts, frontend(fmt.Sprintf("192.168.50.1:%d", 30000+i*3), proxy.UDP))
	}
	tests := []struct {
		name string
		have []proxy.Frontend
		want string
	}{
		{"none", nil, ""},
		{"few are in one chain", []proxy.Frontend{frontend("10.96.0.1:443", proxy.TCP), frontend("10.96.0.1:53", proxy.UDP), frontend("10.96.0.1:53", proxy.SCTP)}, `
SLUICE-SERVICES -d 10.96.0.1/32 -p udp -m udp --dport 53
SLUICE-SERVICES -d 10.96.0.1/32 -p sctp -m sctp --dport 53
SLUICE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443
`},
		{"many are led on by the first digit that differs", vips, `
SLUICE-SERVICES -d 10.96.0.0/20 -g SLUICE-S-0a600
SLUICE-SERVICES -d 10.96.16.0/20 -g SLUICE-S-0a601
SLUICE-SERVICES -d 10.96.32.0/20 -g SLUICE-S-0a602
SLUICE-SERVICES -d 10.96.48.0/20 -g SLUICE-S-0a603
SLUICE-SERVICES -d 10.96.64.0/20 -g SLUICE-S-0a604
SLUICE-SERVICES -d 10.96.80.0/20 -g SLUICE-S-0a605
SLUICE-SERVICES -d 10.96.96.0/20 -g SLUICE-S-0a606
SLUICE-SERVICES -d 10.96.114.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a600 -d 10.96.0.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a600 -d 10.96.6.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a600 -d 10.96.12.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a601 -d 10.96.18.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a601 -d 10.96.24.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a601 -d 10.96.30.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a602 -d 10.96.36.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a602 -d 10.96.42.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a603 -d 10.96.48.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a603 -d 10.96.54.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a603 -d 10.96.60.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a604 -d 10.96.66.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a604 -d 10.96.72.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a604 -d 10.96.78.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a605 -d 10.96.84.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a605 -d 10.96.90.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a606 -d 10.96.96.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a606 -d 10.96.102.1/32 -p tcp -m tcp --dport 80
SLUICE-S-0a606 -d 10.96.108.1/32 -p tcp -m tcp --dport 80
`},
		{"ports of one address, and another one", append(nodePorts, frontend("10.96.0.1:443", proxy.TCP)), `
SLUICE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443
SLUICE-SERVICES -d 192.0.0.0/4 -g SLUICE-S-c
SLUICE-S-c -d 192.168.50.1/32 -p udp -m udp --dport 30000:30015 -g SLUICE-S-c0a83201-1-753
SLUICE-S-c -d 192.168.50.1/32 -p udp -m udp --dport 30016:30031 -g SLUICE-S-c0a83201-1-754
SLUICE-S-c -d 192.168.50.1/32 -p udp -m udp --dport 30032:30047 -g SLUICE-S-c0a83201-1-755
SLUICE-S-c -d 192.168.50.1/32 -p udp -m udp --dport 30048:30063 -g SLUICE-S-c0a83201-1-756
SLUICE-S-c0a83201-1-753 -d 192.168.50.1/32 -p udp -m udp --dport 30000
SLUICE-S-c0a83201-1-753 -d 192.168.50.1/32 -p udp -m udp --dport 30003
SLUICE-S-c0a83201-1-753 -d 192.168.50.1/32 -p udp -m udp --dport 30006
SLUICE-S-c0a83201-1-753 -d 192.168.50.1/32 -p udp -m udp --dport 30009
SLUICE-S-c0a83201-1-753 -d 192.168.50.1/32 -p udp -m udp --dport 30012
SLUICE-S-c0a83201-1-753 -d 192.168.50.1/32 -p udp -m udp --dport 30015
SLUICE-S-c0a83201-1-754 -d 192.168.50.1/32 -p udp -m udp --dport 30018
SLUICE-S-c0a83201-1-754 -d 192.168.50.1/32 -p udp -m udp --dport 30021
SLUICE-S-c0a83201-1-754 -d 192.168.50.1/32 -p udp -m udp --dport 30024
SLUICE-S-c0a83201-1-754 -d 192.168.50.1/32 -p udp -m udp --dport 30027
SLUICE-S-c0a83201-1-754 -d 192.168.50.1/32 -p udp -m udp --dport 30030
SLUICE-S-c0a83201-1-755 -d 192.168.50.1/32 -p udp -m udp --dport 30033
SLUICE-S-c0a83201-1-755 -d 192.168.50.1/32 -p udp -m udp --dport 30036
SLUICE-S-c0a83201-1-755 -d 192.168.50.1/32 -p udp -m udp --dport 30039
SLUICE-S-c0a83201-1-755 -d 192.168.50.1/32 -p udp -m udp --dport 30042
SLUICE-S-c0a83201-1-755 -d 192.168.50.1/32 -p udp -m udp --dport 30045
SLUICE-S-c0a83201-1-756 -d 192.168.50.1/32 -p udp -m udp --dport 30048
SLUICE-S-c0a83201-1-756 -d 192.168.50.1/32 -p udp -m udp --dport 30051
SLUICE-S-c0a83201-1-756 -d 192.168.50.1/32 -p udp -m udp --dport 30054
SLUICE-S-c0a83201-1-756 -d 192.168.50.1/32 -p udp -m udp --dport 30057
`},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), listing(testTrie(tt.have...))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestDispatch sends a packet to every frontend, and some to others, and counts the rules.
func TestDispatch(t *testing.T) {
	tests := []struct {
		services int
		most     int // rules that a packet may pass, up to its endpoint
		mean     int
	}{{10, 20, 12}, {1000, 60, 35}, {5000, 75, 45}}
	for _, f := range proxy.Families {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%v/%d", f, tt.services), func(t *testing.T) {
				s := manyServices(f, tt.services, 3, proxy.Settings{})
				m := full(t, s)
				src := netip.AddrPortFrom(f.Loopback(), 1)
				most, sum, n := 0, 0, 0
				for fr, r := range s.Routes() {
					target, passed := m.walk("nat", servicesChain, src, netip.AddrPortFrom(fr.Addr, fr.Port), fr.Protocol)
					if want := "DNAT --to-destination " + r.Pool.Slots[2].String(); target != want {
						t.Fatalf("%v leads to %q, want %q", fr, target, want)
					}
					most, sum, n = max(most, passed), sum+passed, n+1
					other := netip.AddrPortFrom(fr.Addr, fr.Port+1)
					if target, _ := m.walk("nat", servicesChain, src, other, fr.Protocol); target != "" {
						t.Fatalf("%v leads to %q", other, target)
					}
				}
				t.Logf("%d Services, %d frontends: the first packet passes %d rules in the mean, %d at most", tt.services, n, sum/n, most)
				if most > tt.most || sum/n > tt.mean {
					t.Errorf("that is too many: want %d and %d", tt.mean, tt.most)
				}
			})
		}
	}
}
