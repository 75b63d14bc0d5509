package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodePortAddresses(t *testing.T) {
	if s, err := ParseNodePortAddresses(nil); err != nil || len(s.Addrs(IPv4, ipAddrs(IPv4, "node1"), netip.MustParseAddr("127.0.0.1"))) != 1 {
		t.Error("a Node whose address is a loopback one (it has none yet) serves NodePorts nowhere")
	}
	all := ipAddrs(IPv4, "node1 node2 lb1")
	all = append(all, ipAddrs(IPv6, "node1 node2 lb1")...)
	for _, s := range []string{"127.0.0.1", "::1", "169.254.1.1", "fe80::1"} {
		all = append(all, netip.MustParseAddr(s))
	}
	primary := map[Family]string{IPv4: "node2", IPv6: "node2"}
	for _, tc := range []struct {
		flag      string
		primary   map[Family]string // node2 of both families if it is nil
		want      map[Family]string
		localhost bool // in IPv4, then in IPv6
		localv6   bool
	}{
		{flag: "", want: map[Family]string{IPv4: "node2", IPv6: "node2"}},
		{flag: "primary", want: map[Family]string{IPv4: "node2", IPv6: "node2"}},
		{flag: "primary", primary: map[Family]string{IPv4: "node2"}, want: map[Family]string{IPv4: "node2", IPv6: "node1 node2 lb1"}},
		{flag: "primary", primary: map[Family]string{IPv4: "ext1"}, want: map[Family]string{IPv6: "node1 node2 lb1"}},
		{flag: "all", want: map[Family]string{IPv4: "node1 node2 lb1", IPv6: "node1 node2 lb1"}},
		{flag: "192.168.0.0/16", want: map[Family]string{IPv4: "node1 node2", IPv6: "node1 node2 lb1"}},
		{flag: " 192.168.1.1/32 , 2001:db8:1::/64", want: map[Family]string{IPv4: "node1", IPv6: "node1 node2"}},
		{flag: "198.51.100.0/24,primary", want: map[Family]string{IPv4: "node2 lb1", IPv6: "node2"}},
		{flag: "localhost", want: map[Family]string{}, localhost: true, localv6: true},
		{flag: "localhost,primary", want: map[Family]string{IPv4: "node2", IPv6: "node2"}, localhost: true, localv6: true},
		{flag: "127.0.0.0/8", want: map[Family]string{IPv6: "node1 node2 lb1"}, localhost: true},
		{flag: "::1/128", want: map[Family]string{IPv4: "node1 node2 lb1"}, localv6: true},
		{flag: "10.0.0.0/8", want: map[Family]string{IPv6: "node1 node2 lb1"}},
	} {
		s, err := ParseNodePortAddresses(strings.Split(tc.flag, ","))
		if err != nil {
			t.Errorf("%q: %v", tc.flag, err)
			continue
		}
		if tc.primary == nil {
			tc.primary = primary
		}
		for _, f := range Families {
			var p netip.Addr
			if name := tc.primary[f]; name != "" {
				p = ipAddr(f, name)
			}
			if diff := cmp.Diff(distinct(ipAddrs(f, tc.want[f])), s.Addrs(f, all, p), compareAddrs); diff != "" {
				t.Errorf("%q, primary %v, %v (-want +got):\n%s", tc.flag, p, f, diff)
			}
		}
		if got := s.Localhost(IPv4); got != tc.localhost {
			t.Errorf("%q: at localhost in IPv4: %v", tc.flag, got)
		}
		if got := s.Localhost(IPv6); got != tc.localv6 {
			t.Errorf("%q: at localhost in IPv6: %v", tc.flag, got)
		}
	}
}

func TestBadNodePortAddresses(t *testing.T) {
	for _, bad := range []string{"Primary", "192.168.1.1", "10.0.0.0/33", "eth0"} {
		_, err := ParseNodePortAddresses([]string{"primary", bad})
		if err == nil {
			t.Errorf("%q is taken", bad)
			continue
		}
		for _, word := range []string{bad, "--nodeport-addresses", "CIDR", "primary", "localhost", "all"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("the error %q does not name %q", err, word)
			}
		}
	}
}
