package proxy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSelectDetection(t *testing.T) {
	podCIDRs := map[Family]string{IPv4: "10.42.0.0/24", IPv6: "fd00:42::/64"}
	clusterCIDRs := map[Family]string{IPv4: "10.42.0.0/16", IPv6: "fd00:42::/48"}
	other := func(f Family) Family { return IPv4 + IPv6 - f }
	for _, tc := range []struct {
		name     string
		flags    DetectionFlags
		cluster  map[Family]string // added to flags.ClusterCIDRs
		podCIDRs func(f Family) []string
		want     Detection
		cidr     map[Family]string // added to want.PodCIDRs
		why      string            // words that the sentence has
	}{
		{name: "nothing set", podCIDRs: func(f Family) []string { return []string{podCIDRs[other(f)], podCIDRs[f]} },
			want: Detection{Mode: DetectNodeCIDR}, cidr: podCIDRs, why: "Node's podCIDRs"},
		{name: "nothing set, no podCIDRs", why: "neither"},
		{name: "nothing set, podCIDRs of the other family", podCIDRs: func(f Family) []string { return []string{podCIDRs[other(f)], "junk"} }, why: "neither"},
		{name: "cluster CIDR set", cluster: clusterCIDRs, podCIDRs: func(f Family) []string { return []string{podCIDRs[f]} },
			want: Detection{Mode: DetectClusterCIDR}, cidr: clusterCIDRs, why: "--cluster-cidr"},
		{name: "mode ClusterCIDR", flags: DetectionFlags{Mode: DetectClusterCIDR}, cluster: clusterCIDRs,
			want: Detection{Mode: DetectClusterCIDR}, cidr: clusterCIDRs, why: "--cluster-cidr"},
		{name: "mode ClusterCIDR without any", flags: DetectionFlags{Mode: DetectClusterCIDR}, podCIDRs: func(f Family) []string { return []string{podCIDRs[f]} },
			why: "--cluster-cidr has no range"},
		{name: "mode NodeCIDR", flags: DetectionFlags{Mode: DetectNodeCIDR}, cluster: clusterCIDRs, podCIDRs: func(f Family) []string { return []string{podCIDRs[f]} },
			want: Detection{Mode: DetectNodeCIDR}, cidr: podCIDRs, why: "Node's podCIDRs"},
		{name: "mode NodeCIDR without any", flags: DetectionFlags{Mode: DetectNodeCIDR}, cluster: clusterCIDRs, why: "Node's podCIDRs have no range"},
		{name: "mode BridgeInterface", flags: DetectionFlags{Mode: DetectBridgeInterface, BridgeInterface: "cni0", InterfaceNamePrefix: "veth"}, cluster: clusterCIDRs,
			want: Detection{Mode: DetectBridgeInterface, Interface: "cni0"}, why: "cni0"},
		{name: "mode InterfaceNamePrefix", flags: DetectionFlags{Mode: DetectInterfaceNamePrefix, BridgeInterface: "cni0", InterfaceNamePrefix: "veth"}, cluster: clusterCIDRs,
			want: Detection{Mode: DetectInterfaceNamePrefix, Interface: "veth"}, why: "veth"},
	} {
		for _, f := range Families {
			var pods []string
			if tc.podCIDRs != nil {
				pods = tc.podCIDRs(f)
			}
			for _, g := range Families {
				tc.flags.ClusterCIDRs = append(tc.flags.ClusterCIDRs[:len(tc.flags.ClusterCIDRs):len(tc.flags.ClusterCIDRs)], prefixes(g, tc.cluster[g])...)
			}
			want := tc.want
			want.PodCIDRs = prefixes(f, tc.cidr[f])
			got, why, err := tc.flags.Select(f, pods)
			tc.flags.ClusterCIDRs = nil
			if err != nil {
				t.Errorf("%s, %v: %v", tc.name, f, err)
			}
			if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", tc.name, f, diff)
			}
			if !strings.HasPrefix(why, f.String()) || !strings.HasSuffix(why, ".") || !strings.Contains(why, tc.why) {
				t.Errorf("%s, %v: the sentence is %q", tc.name, f, why)
			}
		}
	}
}

func TestBadDetection(t *testing.T) {
	for _, tc := range []struct {
		flags DetectionFlags
		words string
	}{
		{DetectionFlags{Mode: "clustercidr"}, "clustercidr --detect-local-mode ClusterCIDR NodeCIDR BridgeInterface InterfaceNamePrefix"},
		{DetectionFlags{Mode: DetectBridgeInterface}, "BridgeInterface --pod-bridge-interface"},
		{DetectionFlags{Mode: DetectInterfaceNamePrefix, BridgeInterface: "cni0"}, "InterfaceNamePrefix --pod-interface-name-prefix"},
	} {
		_, _, err := tc.flags.Select(IPv4, nil)
		if err == nil {
			t.Errorf("%v is taken", tc.flags)
			continue
		}
		for _, word := range strings.Fields(tc.words) {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("the error %q does not name %s", err, word)
			}
		}
	}
}
