package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/test/outcomes"
)

// TestTrace: what a packet meets, in the words of iptables-save.
func TestTrace(t *testing.T) {
	addr, endpoint := netip.MustParseAddr, netip.MustParseAddrPort
	s := proxy.NewState(proxy.IPv4, proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: prefixes("10.42.0.0/16")}})
	name := proxy.ServiceName{Namespace: "shop", Name: "web"}
	pool := &proxy.Pool{Slots: []netip.AddrPort{endpoint("10.42.0.5:8080"), endpoint("10.42.1.5:8080")}}
	s.Set(name, &proxy.ServicePlan{Name: name, ClusterIPs: []netip.Addr{addr("10.43.0.1")}, LocalEndpoints: []netip.Addr{addr("10.42.0.5")},
		Frontends: []proxy.FrontendRoute{{
			Frontend: proxy.Frontend{Addr: addr("10.43.0.1"), Port: 80, Protocol: proxy.TCP},
			Route:    &proxy.Route{Port: proxy.ServicePortName{ServiceName: name, Protocol: proxy.TCP}, Pool: pool, Masquerade: proxy.MasqueradeOffCluster},
		}}})
	for _, tt := range []struct{ from, to, want string }{
		{"10.42.0.5", "10.43.0.1:80", `
forwarded to 10.42.0.5:8080 masqueraded
  nat PREROUTING: -m comment --comment "sluice: Services" -j SLUICE-SERVICES
  nat SLUICE-SERVICES: -d 10.43.0.1/32 -p tcp -m tcp --dport 80 -m comment --comment "shop/web" -g SVC
  nat SVC: -j SLUICE-OFF-CLUSTER
  nat SLUICE-OFF-CLUSTER: -s 10.42.0.0/16 -j RETURN
  nat SVC: -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.42.0.5:8080
  nat POSTROUTING: -m comment --comment "sluice: masquerade" -j SLUICE-POSTROUTING
  nat SLUICE-POSTROUTING: -m conntrack --ctstate DNAT -m comment --comment "a pod that reaches itself" -j SLUICE-HAIRPIN
  nat SLUICE-HAIRPIN: -s 10.42.0.5/32 -d 10.42.0.5/32 -j MASQUERADE --random-fully
forwarded to 10.42.1.5:8080
  nat PREROUTING: -m comment --comment "sluice: Services" -j SLUICE-SERVICES
  nat SLUICE-SERVICES: -d 10.43.0.1/32 -p tcp -m tcp --dport 80 -m comment --comment "shop/web" -g SVC
  nat SVC: -j SLUICE-OFF-CLUSTER
  nat SLUICE-OFF-CLUSTER: -s 10.42.0.0/16 -j RETURN
  nat SVC: -p tcp -j DNAT --to-destination 10.42.1.5:8080
`},
		{"192.0.2.7", "10.43.0.1:81", `
rejected
  filter FORWARD: -m conntrack --ctstate NEW -m comment --comment "sluice: no endpoint" -j SLUICE-ANSWERS
  filter SLUICE-ANSWERS: -m comment --comment "no such port" -j SLUICE-CLUSTER-IPS
  filter SLUICE-CLUSTER-IPS: -d 10.43.0.1/32 -g SLUICE-REJECT
  filter SLUICE-REJECT: -p tcp -j REJECT --reject-with tcp-reset
`},
		{"192.0.2.7", "203.0.113.3:80", "\nuntouched\n"},
	} {
		to := endpoint(tt.to)
		found, err := Planned(s).Trace(t.Context(), proxy.Packet{
			From: proxy.Source{Addr: addr(tt.from), Interface: "eth0"}, To: proxy.Frontend{Addr: to.Addr(), Port: to.Port(), Protocol: proxy.TCP},
		})
		if err != nil {
			t.Errorf("%s to %s: %v", tt.from, tt.to, err)
		}
		got := strings.ReplaceAll(outcomes.Text(found, "ip "), portChain(internalChain, proxy.ServicePortName{ServiceName: name, Protocol: proxy.TCP}), "SVC")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s to %s (-want +got):\n%s", tt.from, tt.to, diff)
		}
	}
}

// TestParseRule takes lines of iptables-save to pieces.
func TestParseRule(t *testing.T) {
	type o = option
	for _, tt := range []struct {
		line string
		want parsedRule
	}{
		{"-A FORWARD -j ACCEPT", parsedRule{chain: "FORWARD", target: "ACCEPT"}},
		{`-A A ! -i lo -p tcp -m tcp ! --dport 80:90 -m comment --comment "-j \"x\" ! -g" -g B`, parsedRule{chain: "A", goes: true, target: "B", options: []o{
			{name: "-i", negated: true, args: []string{"lo"}}, {name: "-p", args: []string{"tcp"}}, {name: "-m", args: []string{"tcp"}},
			{name: "--dport", negated: true, args: []string{"80:90"}}, {name: "-m", args: []string{"comment"}}, {name: "--comment", args: []string{`-j "x" ! -g`}},
		}}},
		{"-A A -p tcp -m tcp --tcp-flags FIN,SYN SYN -j DNAT --to-destination 1.2.3.4:5", parsedRule{chain: "A", target: "DNAT", options: []o{
			{name: "-p", args: []string{"tcp"}}, {name: "-m", args: []string{"tcp"}}, {name: "--tcp-flags", args: []string{"FIN,SYN", "SYN"}},
		}, targetOptions: []o{{name: "--to-destination", args: []string{"1.2.3.4:5"}}}}},
		{`-A A -m comment --comment "no end`, parsedRule{chain: "A", options: []o{{name: "-m", args: []string{"comment"}}, {name: "--comment", args: []string{"no end"}}}}},
	} {
		got, ok := parseRule(tt.line)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(parsedRule{}, option{})); !ok || diff != "" {
			t.Errorf("%s: %v %s", tt.line, ok, diff)
		}
	}
	if _, ok := parseRule(":FORWARD ACCEPT [0:0]"); ok {
		t.Error("a chain is no rule")
	}
}
