package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/rig"
)

// TestFlapping has addresses, links and default routes of the node come and go a hundred times a second each: nobody's connections
// notice, the agent writes when it is quiet for a moment and at most some times a second, and ends with what there is.
func TestFlapping(t *testing.T) {
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	clients := c.Connect(20*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080", "outside udp node:30080")
	extra := map[proxy.Family]string{proxy.IPv4: "192.168.50.77/24", proxy.IPv6: "fd00:192:168:50::77/64"}
	var flaps strings.Builder
	for _, f := range proxy.Families {
		fmt.Fprintf(&flaps, "address add %s dev eth0\naddress delete %[1]s dev eth0\n", extra[f])
		fmt.Fprintf(&flaps, "route add default via %v metric 5\nroute delete default via %[1]v metric 5\n", c.Lab.Host("router").Addr(f))
	}
	flaps.WriteString("link set flap up\nlink set flap down\naddress add 203.0.113.99/32 dev flap\naddress delete 203.0.113.99/32 dev flap\n")
	c.OnNode("ip", "link", "add", "flap", "type", "veth", "peer", "name", "flap2")
	flap(c, flaps.String())
	rig.EndUndisturbed(t, clients, "pod2:8080")

	for _, f := range proxy.Families { // what there is in the end counts
		c.OnNode("ip", "address", "add", extra[f], "dev", "eth0", "nodad")
	}
	c.Await(rig.Soon, "the node's address", func(s status.Status) bool { return rig.Settled(s) && s.Healthy })
	c.Reach(rig.Soon, "outside tcp node:30080", "pod2:8080")
	c.Reach(0, "node tcp node:30080", "pod2:8080")
}

// TestFlappingUplink has the link that carries the node's address, and with it its addresses and routes, come and go a hundred times a
// second, as with a cable that is loose: connections within the node do not notice, and when it stays the node is reached again.
func TestFlappingUplink(t *testing.T) {
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	clients := c.Connect(20*time.Millisecond, "pod1 tcp vip1:80", "pod1 udp vip1:80")
	up := "link set eth0 up\n" // and what a DHCP client does: the kernel takes IPv6 addresses and all routes away with the link
	for _, f := range proxy.Families {
		up += fmt.Sprintf("address replace %v/%d dev eth0 nodad\nroute replace default via %v\n",
			c.Lab.Node.Addr(f), map[proxy.Family]int{proxy.IPv4: 24, proxy.IPv6: 64}[f], c.Lab.Host("router").Addr(f))
	}
	if err := c.NS.IP(t.Context(), "link set eth0 down"); err != nil {
		t.Fatal(err)
	}
	c.Await(rig.Soon, "no address of the link", func(s status.Status) bool {
		return rig.Settled(s) && !slices.Contains(s.NodeAddresses, c.Lab.Node.Addr(proxy.IPv4)) && !slices.Contains(s.NodeAddresses, c.Lab.Node.Addr(proxy.IPv6))
	})
	flap(c, up+"link set eth0 down\n")
	rig.EndUndisturbed(t, clients, "pod2:8080")
	if err := c.NS.IP(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	c.Reach(rig.Soon, "outside tcp node:30080", "pod2:8080")
	c.Reach(0, "outside udp node:30080", "pod2:8080")
	c.Reach(0, "pod3 tcp node:30080", "pod2:8080")
}

// flap makes the changes of a script of ip a hundred times a second, for 5 s, and checks what they cost the agent.
func flap(c *cluster, script string) {
	t, changes := c.T, strings.Count(script, "\n")
	begun, cpu, memory, written := time.Now(), c.CPU(), c.Memory("RssAnon"), writes(c)
	const rounds = 500
	ticks := time.Tick(10 * time.Millisecond)
	for range rounds {
		<-ticks
		if err := c.NS.IP(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begun)
	cpu, memory, written = c.CPU()-cpu, c.Memory("RssAnon")-memory, writes(c)-written
	t.Logf("%d rounds of %d changes in %v: %v of CPU time, %d kB more of memory, %d writes", rounds, changes, took, cpu, memory/1024, written)
	if cpu > took/2 {
		t.Errorf("%d changes cost %v of CPU time in %v", changes*rounds, cpu, took)
	}
	if memory > 8<<20 {
		t.Errorf("%d kB more of memory", memory/1024)
	}
	if most := 3 + int(took/(100*time.Millisecond)); written > most {
		t.Errorf("rules were written %d times in %v", written, took)
	}
}

// writes counts the writes of rules of both families.
func writes(c *cluster) (n int) {
	for _, f := range proxy.Families {
		n += int(rig.Metric(c.T, c.Lab.Node, fmt.Sprintf("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=%q}", f)))
	}
	return n
}
