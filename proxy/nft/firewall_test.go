package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/proxy"
	"sluice/test/lab"
)

// TestFirewall judges rule sets as nft takes them: what a connection from 198.51.100.7 through eth0 (index 2) to a Service's
// endpoint 10.42.0.5:8080 behind cni0 (3) meets there.
func TestFirewall(t *testing.T) {
	forward := func(policy string, rules ...string) string {
		return fmt.Sprintf("table inet fw { chain forwarding { type filter hook forward priority 0; policy %s; %s }; }", policy, strings.Join(append(rules, ""), "; "))
	}
	pre := func(priority int, rules string) string {
		return fmt.Sprintf("table inet fw { chain incoming { type filter hook prerouting priority %d; %s; }; }", priority, rules)
	}
	const drops = "nftables inet fw forwarding: policy drop"
	tests := []struct{ name, rules, want string }{
		{"no chain", "", ""},
		{"a policy", forward("drop"), drops},
		{"a policy that accepts", forward("accept"), ""},
		{"established alone is accepted", forward("drop", "ct state established,related accept"), drops},
		{"new is accepted", forward("drop", "ct state new accept"), ""},
		{"what went through DNAT is accepted", forward("drop", "ct status dnat accept"), ""},
		{"invalid is dropped", forward("accept", "ct state invalid drop"), ""},
		{"other interfaces are accepted", forward("drop", `iifname "wg0" accept`, `iif lo accept`), drops},
		{"its interface is accepted", forward("drop", `iifname "eth*" oifname "cni0" accept`), ""},
		{"interfaces in a set", forward("drop", `iifname { "eth0", "eth1" } accept`), ""},
		{"the endpoint's range is accepted", forward("drop", "ip daddr 10.42.0.0/16 accept"), ""},
		{"the endpoint's range in a set", forward("drop", "ip daddr { 10.41.0.0/16, 10.42.0.0/24 } accept"), ""},
		{"other ranges in a set", forward("drop", "ip daddr { 10.41.0.0/16, 10.43.0.0/16 } accept"), drops},
		{"all ranges but one", forward("drop", "ip daddr != { 10.43.0.0/16 } accept"), ""},
		{"a range of addresses", forward("drop", "ip daddr 10.42.0.1-10.42.0.9 accept"), ""},
		{"the endpoint's port", forward("drop", "tcp dport { 80, 8000-8100 } accept"), ""},
		{"the Service's port", forward("drop", "tcp dport { 80, 443 } accept"), drops},
		{"the Service's address, as it was", forward("drop", "ct original ip daddr 10.43.0.1 accept"), ""},
		{"an address and port", forward("drop", "ip daddr . tcp dport { 10.42.0.0/16 . 8080 } accept"), ""},
		{"another family", forward("drop", "meta nfproto ipv6 accept"), drops},
		{"a source", forward("accept", "ip saddr 198.51.100.0/24 counter log prefix \"no\" drop"),
			`nftables inet fw forwarding: meta nfproto ipv4 ip saddr 198.51.100.0/24 counter log drop`},
		{"a reject", forward("accept", "reject with icmpx admin-prohibited"), "nftables inet fw forwarding: reject"},
		{"a limit", forward("drop", "limit rate 10/second accept"), "maybe " + drops},
		{"a limit that drops", forward("accept", "limit rate over 10/second drop"), "maybe nftables inet fw forwarding: limit drop"},
		{"a mark that nobody sets", forward("accept", "meta mark & 0x8000 == 0x8000 drop"), ""},
		{"a jump", "table inet fw { chain sub { ip daddr 10.42.0.5 drop; }; chain forwarding { type filter hook forward priority 0; jump sub; }; }",
			"nftables inet fw sub: meta nfproto ipv4 ip daddr 10.42.0.5 drop"},
		{"a jump that returns", "table inet fw { chain sub { ip daddr 10.42.0.5 return; drop; }; chain forwarding { type filter hook forward priority 0; jump sub; }; }", ""},
		{"a goto behind which a policy waits", "table inet fw { chain sub { ip daddr 10.43.0.5 drop; }; chain forwarding { type filter hook forward priority 0; policy drop; goto sub; accept; }; }", drops},
		{"a verdict map", `table inet fw { chain sub { drop; }; chain forwarding { type filter hook forward priority 0; iifname vmap { "lo" : accept, "eth0" : goto sub }; }; }`,
			"nftables inet fw sub: drop"},
		{"a verdict map with a range", `table inet fw { chain sub { drop; }; chain forwarding { type filter hook forward priority 0; ip saddr vmap { 10.0.0.0/8 : accept, 198.51.100.0/24 : goto sub }; }; }`,
			"nftables inet fw sub: drop"},
		{"a named set", "table inet fw { set pods { type ipv4_addr; flags interval; elements = { 10.42.0.0/16 }; }; chain forwarding { type filter hook forward priority 0; policy drop; ip daddr @pods accept; }; }", ""},
		{"an accept of one table does not stop another", forward("accept", "accept") + "; table ip late { chain forwarding { type filter hook forward priority 10; policy drop; }; }",
			"nftables ip late forwarding: policy drop"},
		{"chains of other hooks", "table inet fw { chain incoming { type filter hook input priority 0; policy drop; }; }", ""},
		{"behind the routing", "table inet fw { chain post { type filter hook postrouting priority 0; oifname \"cni0\" drop; }; }",
			`nftables inet fw post: oifname "cni0" drop`},
		{"behind the masquerading the source may be another", "table inet fw { chain post { type filter hook postrouting priority 300; ip saddr 198.51.100.7 drop; }; }",
			"maybe nftables inet fw post: meta nfproto ipv4 ip saddr 198.51.100.7 drop"},
		{"before the DNAT it has the Service's address", pre(-150, "ip daddr 10.43.0.1 tcp dport 80 drop"), "nftables inet fw incoming: meta nfproto ipv4 ip daddr 10.43.0.1 meta l4proto tcp th dport 80 drop"},
		{"before the DNAT it has not the endpoint's", pre(-150, "ip daddr 10.42.0.5 drop; tcp dport 8080 drop; ct status dnat drop"), ""},
		{"behind the DNAT it has the endpoint's, before it is routed", pre(0, "ip daddr 10.43.0.1 drop; tcp dport 8080 ct status dnat drop"), "nftables inet fw incoming: meta l4proto tcp th dport 8080 ct status dnat drop"},
		{"no route back", pre(-300, "fib saddr . iif oif missing drop"), ""},
		{"nothing is tracked yet", pre(-300, "ct state new drop"), ""},
		{"not to be tracked, so no DNAT", pre(-300, "tcp dport 80 notrack"), "maybe nftables inet fw incoming: meta l4proto tcp th dport 80 notrack"},
		{"tracked already", pre(-150, "tcp dport 80 notrack"), ""},
		{"a mark that is set", forward("accept", "meta mark set 1", "meta mark 1 drop"), "maybe nftables inet fw forwarding: meta mark 0x00000001 drop"},
		{"a mark that is set for others", forward("accept", `iifname "wg0" meta mark set 1`, "meta mark 1 drop"), ""},
		{"a mark that an earlier chain sets", pre(-150, "meta mark set 1") + "; table inet late { chain forwarding { type filter hook forward priority 0; meta mark 1 drop; }; }",
			"maybe nftables inet late forwarding: meta mark 0x00000001 drop"},
		{"a mark that is restored", pre(-150, "meta mark set ct mark") + "; table inet late { chain forwarding { type filter hook forward priority 0; meta mark 1 drop; }; }", ""},
		{"a connection's mark that is set", forward("accept", "ct mark set 1", "ct mark 1 drop"), "maybe nftables inet fw forwarding: ct mark 0x00000001 drop"},
		{"all addresses in a named set", "table inet fw { set any4 { type ipv4_addr; flags interval; elements = { 0.0.0.0/0 }; }; chain forwarding { type filter hook forward priority 0; policy drop; ip saddr @any4 accept; }; }", ""},
		{"a verdict map of what cannot be known", forward("accept", "tcp sport vmap { 1-1023 : accept, 1024-65535 : drop }"), "maybe nftables inet fw forwarding: meta l4proto tcp th sport vmap @__map0"},
		{"a verdict map of it that leads to a chain", "table inet fw { chain sub { drop; }; chain forwarding { type filter hook forward priority 0; tcp sport vmap { 1-1023 : accept, 1024-65535 : jump sub }; }; }",
			"maybe nftables inet fw sub: drop"},
	}
	n := lab.NewTestNamespace(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n.Must(t, "nft", "flush ruleset; "+tt.rules)
			f, err := OpenFirewall(Options{Family: proxy.IPv4, NetNS: n.FD()}, false)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			blocks, err := f.Blocks(proxy.Passage{
				From: proxy.Source{Addr: netip.MustParseAddr("198.51.100.7")}, Endpoint: netip.MustParseAddrPort("10.42.0.5:8080"),
				To: proxy.Frontend{Addr: netip.MustParseAddr("10.43.0.1"), Port: 80, Protocol: proxy.TCP},
				In: proxy.Interface{Name: "eth0", Index: 2}, Out: proxy.Interface{Name: "cni0", Index: 3},
			})
			var got []string
			for _, b := range blocks {
				got = append(got, map[bool]string{false: "maybe "}[b.Sure]+b.Chain+": "+b.Rule)
			}
			if err != nil || strings.Join(got, "; ") != tt.want {
				t.Errorf("%q, %v; want %q\n%s", got, err, tt.want, n.Must(t, "nft", "list", "ruleset"))
			}
		})
	}
}

// TestFirewallOfHosts: what this node sends itself, and what it takes in, meets other chains.
func TestFirewallOfHosts(t *testing.T) {
	n := lab.NewTestNamespace(t)
	n.Must(t, "nft", "table inet fw { chain incoming { type filter hook input priority 0; policy drop; tcp dport 22 accept; }; chain outgoing { type filter hook output priority 0; ip daddr 10.42.0.5 drop; };"+
		" chain early { type filter hook output priority -300; ip daddr 10.42.0.5 drop; }; chain rerouting { type route hook output priority -150; tcp dport 8080 drop; }; }")
	f, err := OpenFirewall(Options{Family: proxy.IPv4, NetNS: n.FD()}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := proxy.Passage{To: proxy.Frontend{Addr: netip.MustParseAddr("10.43.0.1"), Port: 80, Protocol: proxy.TCP}, Endpoint: netip.MustParseAddrPort("10.42.0.5:8080")}
	for _, tt := range []struct {
		local, onNode bool
		want          string
	}{{true, false, "nftables inet fw outgoing"}, {false, true, "nftables inet fw incoming"}, {false, false, ""}} {
		p.From.Local, p.OnNode = tt.local, tt.onNode
		blocks, err := f.Blocks(p)
		if err != nil || len(blocks) != min(len(tt.want), 1) || len(blocks) > 0 && blocks[0].Chain != tt.want {
			t.Errorf("%+v: %+v, %v", tt, blocks, err)
		}
	}
}
