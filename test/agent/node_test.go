package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/rig"
)

// TestNodeAddress changes the node's addresses as DHCP and IPv6 router advertisements do: NodePorts follow.
func TestNodeAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	c.Reach(0, "outside tcp node:30080", "pod2:8080")
	fresh := map[proxy.Family]netip.Prefix{proxy.IPv4: netip.MustParsePrefix("192.168.50.77/24"), proxy.IPv6: netip.MustParsePrefix("fd00:192:168:50::77/64")}
	noDAD := map[proxy.Family]string{proxy.IPv6: "nodad"} // usable at once
	old, router := map[proxy.Family]netip.Addr{}, map[proxy.Family]netip.Addr{}
	for _, f := range proxy.Families {
		old[f], router[f] = c.Names["node"+rig.Suffix[f]], c.Lab.Host("router").Addr(f)
		c.Names["fresh"+rig.Suffix[f]] = fresh[f].Addr()
	}

	// A second address comes, and is not the primary one; then the first goes, with the routes that name it.
	for _, f := range proxy.Families {
		c.OnNode("sh", "-ec", fmt.Sprintf(`
			ip address add %v dev eth0 %s
			sleep 0.1
			ip address delete %v/%d dev eth0
			ip address replace %[1]v dev eth0 %[2]s
			ip -%[5]d route replace default via %[6]v src %[7]v`, fresh[f], noDAD[f], old[f], fresh[f].Bits(), f, router[f], fresh[f].Addr()))
	}
	c.Reach(rig.Soon, "outside tcp fresh:30080", "pod2:8080")
	c.Reach(0, "pod1 udp fresh:30080", "pod2:8080")
	c.Reach(0, "node tcp fresh:30080", "pod2:8080")
	for _, f := range proxy.Families {
		if got := rig.Met(c.Probe(f, "outside tcp node:30080").Send(t.Context())); got == "pod2:8080" {
			t.Errorf("%v: the NodePort is still served at the old address", f)
		}
		if table := c.Table(f); strings.Contains(table, old[f].String()+" ") {
			t.Errorf("the old address is still in the table:\n%s", table)
		}
	}

	// All addresses go: the rest keeps working, and they come again.
	c.OnNode("ip", "address", "flush", "dev", "eth0")
	c.Await(rig.Soon, "none of these NodePort addresses", func(s status.Status) bool {
		return rig.Settled(s) && !slices.Contains(s.NodePortAddresses, fresh[proxy.IPv4].Addr()) && !slices.Contains(s.NodePortAddresses, fresh[proxy.IPv6].Addr())
	})
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	for _, f := range proxy.Families {
		c.OnNode("sh", "-ec", fmt.Sprintf("ip address add %v dev eth0 %s", fresh[f], noDAD[f]))
	}
	c.Reach(rig.Soon, "outside tcp fresh:30080", "pod2:8080")
}

// TestNodeObject changes the Node: its zone decides which endpoints are near, its podCIDRs who is a pod.
func TestNodeObject(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Args = c.Args[2:] // no --cluster-cidr
	node := func(zone, v4, v6 string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: node, labels: {topology.kubernetes.io/zone: %s}}
spec: {podCIDR: %s, podCIDRs: [%[2]s, "%[3]s"]}
`, zone, v4, v6)
	}
	hinted := endpoints("web", "pod2", "far1")
	for zone, host := range map[string]string{"zone-a": "pod2", "zone-b": "far1"} {
		for _, f := range proxy.Families {
			address := "addresses: [$" + host + rig.Suffix[f] + "],"
			hinted = strings.ReplaceAll(hinted, address, address+" hints: {forZones: [{name: "+zone+"}]},")
		}
	}
	c.write("web.yaml", service("web", "vip1", ports), hinted)
	c.write("node.yaml", node("zone-a", "10.244.1.0/24", "fd00:10:244:1::/64"))
	c.Run()
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	c.isPod("pod1", true)
	c.Await(rig.Soon, "the Node object", func(s status.Status) bool { return s.NodeKnown })

	c.write("node.yaml", node("zone-b", "10.244.1.0/24", "fd00:10:244:1::/64"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "far1:8080")

	c.write("node.yaml", node("zone-c", "10.244.9.0/24", "fd00:10:244:9::/64"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080", "far1:8080")
	c.isPod("pod1", false)
	for f, cidr := range map[proxy.Family]string{proxy.IPv4: "10.244.9.0/24", proxy.IPv6: "fd00:10:244:9::/64"} {
		if table := c.Table(f); !strings.Contains(table, cidr) {
			t.Errorf("the table does not name %s:\n%s", cidr, table)
		}
	}

	c.Remove("node.yaml") // no zone, no pod CIDR
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080", "far1:8080")
	c.Await(rig.Soon, "no local detection", func(s status.Status) bool {
		return rig.Settled(s) && !s.NodeKnown && !strings.Contains(s.Detection, "10.244")
	})
	if n := c.Logged("local detection", "IPv4", "10.244.1.0/24"); n != 1 {
		t.Errorf("the log tells %d times of one choice of local detection", n)
	}
}

// isPod checks whether a client counts as a pod: its source address stays then.
func (c *cluster) isPod(host string, want bool) {
	c.T.Helper()
	for _, f := range proxy.Families {
		probe := c.Probe(f, host+" tcp vip1:80")
		result := probe.Send(c.T.Context())
		if got := result.Source == c.Names[host+rig.Suffix[f]]; got != want {
			c.T.Errorf("%v: %s counts as a pod: %v, want %v (%v)", f, host, got, want, result)
		}
	}
}

// TestExternalIPs has a Service claim an address of the node and the API server's by externalIPs: with --external-ips foreign both stay
// what they are, and status says so.
func TestExternalIPs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--external-ips", "foreign")
	c.write("kubernetes.yaml", strings.ReplaceAll(service("kubernetes", "vip2", ports)+"---\n"+endpoints("kubernetes", "far2"), "metadata: {", "metadata: {namespace: default, "))
	c.write("grab.yaml", service("grab", "vip1", "  externalIPs: [$ext1, $node, $far2, $vip2, $pod3]\n"+ports), endpoints("grab", "pod2"))
	c.Run()
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod2:8080")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp ext1:80", "pod2:8080")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp node:80", "refused")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp far2:8080", "far2:8080")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip2:80", "far2:8080")
	s, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node", "far2", "vip2", "pod3"} {
		if !strings.Contains(strings.Join(s.Conflicts, "\n"), "default/grab: externalIPs: "+c.Names[name].String()+" is ") {
			t.Errorf("no word of %s: %q", name, s.Conflicts)
		}
	}
}
