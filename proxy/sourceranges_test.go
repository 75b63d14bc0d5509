package proxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestSourceRanges(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ranges  []string
		want    map[Family]string // of the VIP lb1, none if all sources pass; node1 is an address of this node
		ignored string
	}{
		{name: "none"},
		{name: "blanks around", ranges: []string{" 203.0.113.0/24", "2001:db8:9::/64\t", ""},
			want: map[Family]string{IPv4: "203.0.113.0/24", IPv6: "2001:db8:9::/64"}},
		{name: "host bits", ranges: []string{"203.0.113.7/24", "2001:db8:9::7/64"},
			want: map[Family]string{IPv4: "203.0.113.0/24", IPv6: "2001:db8:9::/64"}},
		{name: "leading zeros", ranges: []string{"203.000.113.0/24"},
			want: map[Family]string{IPv4: "203.0.113.0/24"}},
		{name: "IPv4 written as v6", ranges: []string{"::ffff:203.0.113.0/120"},
			want: map[Family]string{IPv4: "203.0.113.0/24"}},
		{name: "all of one family", ranges: []string{"203.0.113.0/24", "0.0.0.0/0", "2001:db8:9::/64"},
			want: map[Family]string{IPv6: "2001:db8:9::/64"}},
		{name: "only the other family's", ranges: []string{"203.0.113.0/24"},
			want: map[Family]string{IPv4: "203.0.113.0/24"}},
		{name: "in order, none in another", ranges: []string{"203.0.113.128/25", "10.0.0.0/8", "203.0.113.0/24", "10.1.0.0/16", "10.0.0.0/8", "2001:db8:9::/64"},
			want: map[Family]string{IPv4: "10.0.0.0/8 203.0.113.0/24", IPv6: "2001:db8:9::/64"}},
		{name: "this node is in range: the VIP is a source", ranges: []string{"192.168.0.0/16", "2001:db8:1::/64"},
			want: map[Family]string{IPv4: "192.168.0.0/16 lb1/HOST", IPv6: "2001:db8:1::/64 lb1/HOST"}},
		{name: "this node and the VIP are in range", ranges: []string{"192.0.0.0/2", "2001:db8::/32"},
			want: map[Family]string{IPv4: "192.0.0.0/2", IPv6: "2001:db8::/32"}},
		{name: "not a CIDR", ranges: []string{"203.0.113.0/24", "203.0.113.1", "2001:db8:9::/64"},
			want:    map[Family]string{IPv4: "203.0.113.0/24", IPv6: "2001:db8:9::/64"},
			ignored: `loadBalancerSourceRanges: "203.0.113.1" is not a CIDR`},
	} {
		for _, f := range Families {
			svc := testService(f)
			loadBalancer(f, svc)
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip(f, "lb2")})
			svc.Spec.LoadBalancerSourceRanges = tc.ranges
			plan := PlanService(testNode(f), svc, nil, nil)
			for _, fr := range plan.Frontends {
				got := fr.Route.SourceRanges
				switch {
				case fr.Route.Kind != LoadBalancerIP || tc.want[f] == "":
					if got != nil {
						t.Errorf("%s, %v: %v lets only %v in", tc.name, f, fr.Frontend, got)
					}
				case fr.Addr == ipAddr(f, "lb1"):
					if diff := cmp.Diff(prefixes(f, tc.want[f]), got, compareAddrs); diff != "" {
						t.Errorf("%s, %v (-want +got):\n%s", tc.name, f, diff)
					}
				case len(got) > 0 && got[len(got)-1].Contains(ipAddr(f, "lb1")) && got[len(got)-1].IsSingleIP():
					t.Errorf("%s, %v: lb1 may send to lb2: %v", tc.name, f, got)
				}
			}
			ignored := ""
			if len(plan.Ignored) > 0 {
				ignored = plan.Ignored[0]
			}
			if ignored != tc.ignored {
				t.Errorf("%s, %v: ignored %q, want %q", tc.name, f, ignored, tc.ignored)
			}
		}
	}
}
