package iptables

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"sluice/proxy"
	"sluice/test/lab"
)

// TestFirewall judges rules as iptables takes them: what a connection from 198.51.100.7 through eth0 to a Service's
// endpoint 10.42.0.5:8080 behind cni0 meets there.
func TestFirewall(t *testing.T) {
	tests := []struct{ name, rules, want string }{
		{"nothing", "", ""},
		{"a policy", "-P FORWARD DROP", "filter FORWARD: policy drop"},
		{"established alone is accepted", "-P FORWARD DROP; -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "filter FORWARD: policy drop"},
		{"new is accepted", "-P FORWARD DROP; -A FORWARD -m state --state NEW -j ACCEPT", ""},
		{"what went through DNAT is accepted", "-P FORWARD DROP; -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT", ""},
		{"other interfaces are accepted", "-P FORWARD DROP; -A FORWARD -i docker0 -j ACCEPT; -A FORWARD -o wg+ -j ACCEPT", "filter FORWARD: policy drop"},
		{"its interfaces are accepted", "-P FORWARD DROP; -A FORWARD -i eth+ -o cni0 -j ACCEPT", ""},
		{"all but others", "-P FORWARD DROP; -A FORWARD ! -o docker0 -j ACCEPT", ""},
		{"the endpoint's range is accepted", "-P FORWARD DROP; -A FORWARD -d 10.42.0.0/16 -j ACCEPT", ""},
		{"the Service's range is accepted", "-P FORWARD DROP; -A FORWARD -d 10.43.0.0/16 -j ACCEPT", "filter FORWARD: policy drop"},
		{"a source is dropped", `-A FORWARD -s 198.51.100.0/24 -m comment --comment "not -j ACCEPT \"these\"" -j DROP`,
			`filter FORWARD: -s 198.51.100.0/24 -m comment --comment "not -j ACCEPT \"these\"" -j DROP`},
		{"a port is rejected", "-A FORWARD -p tcp -m tcp --dport 8000:8100 -j REJECT", "filter FORWARD: -p tcp -m tcp --dport 8000:8100 -j REJECT --reject-with icmp-port-unreachable"},
		{"ports are accepted", "-P FORWARD DROP; -A FORWARD -p tcp -m multiport --dports 80,8080 -j ACCEPT", ""},
		{"the Service's port is accepted", "-P FORWARD DROP; -A FORWARD -p tcp -m tcp --dport 80 -j ACCEPT", "filter FORWARD: policy drop"},
		{"the Service's port, as it was", "-P FORWARD DROP; -A FORWARD -m conntrack --ctorigdstport 80 -j ACCEPT", ""},
		{"the first packet", "-P FORWARD DROP; -A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT", ""},
		{"other flags", "-A FORWARD -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j DROP", ""},
		{"a limit", "-P FORWARD DROP; -A FORWARD -m limit --limit 10/sec -j ACCEPT", "maybe filter FORWARD: policy drop"},
		{"a mark that nobody sets", "-A FORWARD -m mark --mark 0x8000/0x8000 -j DROP", ""},
		{"a range of addresses", "-P FORWARD DROP; -A FORWARD -m iprange --dst-range 10.42.0.1-10.42.0.9 -j ACCEPT", ""},
		{"what is local is accepted", "-P FORWARD DROP; -A FORWARD -m addrtype --dst-type LOCAL -j ACCEPT", "filter FORWARD: policy drop"},
		{"a log", "-A FORWARD -j LOG --log-prefix \"-j DROP\"", ""},
		{"a chain", "-N sub; -A sub -d 10.42.0.5/32 -j DROP; -A FORWARD -j sub", "filter sub: -d 10.42.0.5/32 -j DROP"},
		{"a chain that returns", "-N sub; -A sub -d 10.42.0.5/32 -j RETURN; -A sub -j DROP; -A FORWARD -j sub", ""},
		{"a chain that does not come back", "-P FORWARD DROP; -N sub; -A sub -d 10.43.0.5/32 -j DROP; -A FORWARD -g sub; -A FORWARD -j ACCEPT", "filter FORWARD: policy drop"},
		{"the mangle table", "-t mangle -A POSTROUTING -o cni0 -j DROP", "mangle POSTROUTING: -o cni0 -j DROP"},
		{"before the DNAT", "-t mangle -A PREROUTING -j DROP", "mangle PREROUTING: -j DROP"},
		{"before the DNAT it has the Service's address", "-t raw -A PREROUTING -d 10.43.0.1/32 -p tcp -m tcp --dport 80 -j DROP", "raw PREROUTING: -d 10.43.0.1/32 -p tcp -m tcp --dport 80 -j DROP"},
		{"before the DNAT it has not the endpoint's", "-t raw -A PREROUTING -d 10.42.0.5/32 -j DROP; -t mangle -A PREROUTING -p tcp -m tcp --dport 8080 -j DROP; -t mangle -A PREROUTING -m conntrack --ctstate DNAT -j DROP", ""},
		{"no route back", "-t raw -A PREROUTING -m rpfilter --validmark --invert -j DROP; -t mangle -A PREROUTING -m rpfilter -j RETURN; -t mangle -A PREROUTING -j DROP", ""},
		{"not to be tracked, so no DNAT", "-t raw -A PREROUTING -p tcp -m tcp --dport 80 -j CT --notrack", "maybe raw PREROUTING: -p tcp -m tcp --dport 80 -j CT --notrack"},
		{"a mark that is set", "-t mangle -A PREROUTING -i eth0 -j MARK --set-xmark 0x5/0xffffffff; -A FORWARD -m mark --mark 0x5 -j DROP", "maybe filter FORWARD: -m mark --mark 0x5 -j DROP"},
		{"other bits of a mark that is set", "-A FORWARD -j MARK --set-xmark 0x4000/0x4000; -A FORWARD -m mark --mark 0x8000/0x8000 -j DROP", ""},
		{"a mark that is set for others", "-t mangle -A PREROUTING -i wg0 -j MARK --set-xmark 0x5/0xffffffff; -A FORWARD -m mark --mark 0x5 -j DROP", ""},
		{"a mark that a new connection restores", "-t mangle -A PREROUTING -j CONNMARK --restore-mark; -A FORWARD -m mark --mark 0x5 -j DROP", ""},
		{"a mark that is saved and restored", "-A FORWARD -j CONNMARK --set-xmark 0x5/0xffffffff; -A FORWARD -j CONNMARK --restore-mark; -A FORWARD -m mark --mark 0x5 -j DROP", "maybe filter FORWARD: -m mark --mark 0x5 -j DROP"},
		{"another hook", "-P INPUT DROP", ""},
	}
	for _, variant := range []string{NFT, Legacy} {
		n := lab.NewTestNamespace(t)
		o := Options{Family: proxy.IPv4, NetNS: n.FD(), Variant: variant}
		v, err := o.choose(t.Context())
		if err != nil {
			t.Logf("%s is not tested: %v", variant, err)
			continue
		}
		o.Installed = []Variant{v}
		for _, tt := range tests {
			t.Run(variant+"/"+tt.name, func(t *testing.T) {
				for _, reset := range []string{"-F", "-X", "-P FORWARD ACCEPT", "-P INPUT ACCEPT", "-t mangle -F", "-t raw -F"} {
					n.Must(t, "sh", "-c", v.Path+" "+reset)
				}
				for line := range strings.SplitSeq(tt.rules, "; ") {
					if line != "" {
						n.Must(t, "sh", "-c", v.Path+" "+line)
					}
				}
				f, all, err := ReadFirewall(t.Context(), o)
				if err != nil || all != (variant == NFT) {
					t.Fatalf("all %v, %v", all, err)
				}
				var got []string
				for _, b := range f.Blocks(passage) {
					got = append(got, map[bool]string{false: "maybe "}[b.Sure]+strings.TrimPrefix(b.Chain, v.Name+" ")+": "+b.Rule)
				}
				if strings.Join(got, "; ") != tt.want {
					out, _ := n.Run(context.Background(), "", v.Save)
					t.Errorf("%q, want %q\n%s", got, tt.want, out)
				}
			})
		}
	}
}

// passage is a connection from outside to an endpoint on this node.
var passage = proxy.Passage{
	From: proxy.Source{Addr: netip.MustParseAddr("198.51.100.7")}, Endpoint: netip.MustParseAddrPort("10.42.0.5:8080"),
	To: proxy.Frontend{Addr: netip.MustParseAddr("10.43.0.1"), Port: 80, Protocol: proxy.TCP},
	In: proxy.Interface{Name: "eth0", Index: 2}, Out: proxy.Interface{Name: "cni0", Index: 3},
}
