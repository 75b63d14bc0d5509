package agent

import (
	"fmt"
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
	begun, cpu, memory := time.Now(), c.CPU(), c.Memory("RssAnon")
	const rounds = 500
	ticks := time.Tick(10 * time.Millisecond)
	for range rounds {
		<-ticks
		if err := c.NS.IP(t.Context(), flaps.String()); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begun)
	cpu = c.CPU() - cpu
	t.Logf("%d rounds of 12 changes in %v: %v of CPU time, %d kB more of memory", rounds, took, cpu, (c.Memory("RssAnon")-memory)/1024)
	if cpu > took/2 {
		t.Errorf("%d changes cost %v of CPU time in %v", 12*rounds, cpu, took)
	}
	if more := c.Memory("RssAnon") - memory; more > 8<<20 {
		t.Errorf("%d kB more of memory", more/1024)
	}
	writes := c.Logged("rules written")
	if most := 3 + int(took/(100*time.Millisecond)); writes > most {
		t.Errorf("rules were written %d times in %v", writes, took)
	}
	rig.EndUndisturbed(t, clients, "pod2:8080")

	for _, f := range proxy.Families { // what there is in the end counts
		c.OnNode("ip", "address", "add", extra[f], "dev", "eth0", "nodad")
	}
	c.Await(rig.Soon, "the node's address", func(s status.Status) bool { return rig.Settled(s) && s.Healthy })
	c.Reach(rig.Soon, "outside tcp node:30080", "pod2:8080")
	c.Reach(0, "node tcp node:30080", "pod2:8080")
}
