package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// frontendChange reads "ext1 pod1:80,pod2:80 => none".
func frontendChange(f Family, s string) FrontendChange {
	words := strings.Fields(s)
	route := func(s string) *Route {
		if s == "none" {
			return nil
		}
		return &Route{Port: ServicePortName{ServiceName: ServiceName{"shop", "web"}}, Pool: &Pool{Slots: ats(f, strings.ReplaceAll(s, ",", " "))}}
	}
	return FrontendChange{Frontend{ipAddr(f, words[0]), 80, TCP}, route(words[1]), route(words[3])}
}

func TestMerge(t *testing.T) {
	frontends := func(f Family, list ...string) Delta {
		var d Delta
		for _, s := range list {
			d.Frontends = append(d.Frontends, frontendChange(f, s))
		}
		return d
	}
	clusterIPs := func(f Family, added, removed string) Delta {
		return Delta{AddedClusterIPs: ipAddrs(f, added), RemovedClusterIPs: ipAddrs(f, removed)}
	}
	localEndpoints := func(f Family, added, removed string) Delta {
		return Delta{AddedLocalEndpoints: ipAddrs(f, added), RemovedLocalEndpoints: ipAddrs(f, removed)}
	}
	for _, tc := range []struct {
		name   string
		deltas func(f Family) []Delta
		want   string
	}{
		{"nothing", func(Family) []Delta { return nil }, ""},
		{"one", func(f Family) []Delta { return []Delta{frontends(f, "ext1 none => pod1:80")} },
			"ext1:80/TCP: none => shop/web [pod1:80]"},
		{"of different frontends", func(f Family) []Delta {
			return []Delta{frontends(f, "ext2 none => pod1:80"), frontends(f, "ext1 pod2:80 => none")}
		}, "ext2:80/TCP: none => shop/web [pod1:80] ext1:80/TCP: shop/web [pod2:80] => none"},
		{"changed twice", func(f Family) []Delta {
			return []Delta{frontends(f, "ext1 pod1:80 => pod2:80"), frontends(f, "ext1 pod2:80 => pod3:80")}
		}, "ext1:80/TCP: shop/web [pod1:80] => shop/web [pod3:80]"},
		{"changed back", func(f Family) []Delta {
			return []Delta{frontends(f, "ext1 pod1:80 => pod2:80", "ext2 none => pod1:80"), frontends(f, "ext1 pod2:80 => pod1:80")}
		}, "ext2:80/TCP: none => shop/web [pod1:80]"},
		{"came and went", func(f Family) []Delta {
			return []Delta{frontends(f, "ext1 none => pod1:80"), frontends(f, "ext1 pod1:80 => none")}
		}, ""},
		{"went and came as another", func(f Family) []Delta {
			return []Delta{frontends(f, "ext1 pod1:80 => none"), {}, frontends(f, "ext1 none => pod2:80")}
		}, "ext1:80/TCP: shop/web [pod1:80] => shop/web [pod2:80]"},
		{"cluster IPs cancel", func(f Family) []Delta {
			return []Delta{clusterIPs(f, "cluster1 cluster2", "cluster3"), clusterIPs(f, "cluster3", "cluster1 cluster4")}
		}, "+cluster IPs [cluster2] -cluster IPs [cluster4]"},
		{"cluster IPs come, go and come", func(f Family) []Delta {
			return []Delta{clusterIPs(f, "cluster1", ""), clusterIPs(f, "", "cluster1"), clusterIPs(f, "cluster1", "")}
		}, "+cluster IPs [cluster1]"},
		{"local endpoints cancel", func(f Family) []Delta {
			return []Delta{localEndpoints(f, "", "pod1 pod2"), localEndpoints(f, "pod1 pod3", "")}
		}, "+local endpoints [pod3] -local endpoints [pod2]"},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				text := func(d Delta) string { return strings.Join(strings.Fields(changes(f, d)), " ") }
				var atOnce, oneByOne Delta
				Merge(&atOnce, tc.deltas(f)...)
				if diff := cmp.Diff(tc.want, text(atOnce)); diff != "" {
					t.Errorf("at once (-want +got):\n%s", diff)
				}
				for _, d := range tc.deltas(f) {
					Merge(&oneByOne, d)
				}
				if diff := cmp.Diff(tc.want, text(oneByOne)); diff != "" {
					t.Errorf("one by one (-want +got):\n%s", diff)
				}
			})
		}
	}
}
