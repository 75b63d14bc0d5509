package agent

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/test/rig"
)

// fillers are so many Services with ten endpoints each that their elements take several transactions.
const fillers = 2500

// filler describes them. Half of the endpoints are others in each generation.
func filler(generation int) string {
	var b strings.Builder
	for i := range fillers {
		fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: filler-%d}
spec: {clusterIP: 10.96.%d.%d, ports: [{name: t, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: filler-%[1]d-1, labels: {kubernetes.io/service-name: filler-%[1]d}}
addressType: IPv4
ports: [{name: t, port: 8080}]
endpoints:
`, i, 100+i/250, 1+i%250)
		for e := range 10 {
			fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d], nodeName: node2}\n", 100+e+e%2*10*generation, i/250, 1+i%250)
		}
		b.WriteString("---\n")
	}
	return b.String()
}

// TestLargeRestart restarts the agent when nearly everything has changed meanwhile, so that it takes several transactions to
// catch up. Clients reach an endpoint of before or of after at every moment.
func TestLargeRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", ports)
	sets := [][]string{{"pod1", "pod2", "pod3"}, {"far1"}, {"far2", "pod2"}}
	c.Process.Write("filler.yaml", filler(0))
	c.write("web.yaml", web, endpoints("web", sets[0]...))
	c.write("same.yaml", service("same", "vip2", ports), endpoints("same", "pod2"))
	c.Run()
	all := func(s status.Status) bool { return rig.Settled(s) && s.Services == fillers+2 }
	c.Await(rig.Patience, "all Services", all)
	clients := c.Connect(5*time.Millisecond, "node tcp vip1:80")
	same := c.Connect(5*time.Millisecond, "node tcp vip2:80")
	for i := 1; i <= 3; i++ {
		c.Stop()
		c.Process.Write("filler.yaml", filler(i%2))
		c.write("web.yaml", web, endpoints("web", sets[i%3]...))
		c.Start()
		c.Await(rig.Patience, "all Services", all)
	}
	rig.EndUndisturbed(t, clients, "pod1:8080", "pod2:8080", "pod3:8080", "far1:8080", "far2:8080")
	rig.EndUndisturbed(t, same, "pod2:8080")
	c.Reach(0, "node tcp vip1:80", "pod1:8080", "pod2:8080", "pod3:8080")
	c.upToDate(all)
}

// TestKillWhileFilling kills the agent again and again before its first rules are complete.
func TestKillWhileFilling(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Process.Write("filler.yaml", filler(0))
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	partial := 0
	for round := range 6 {
		c.Start()
		for c.Logged("all objects are known") <= round {
			c.Alive()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(rand.N(150 * time.Millisecond))
		c.End(syscall.SIGKILL)
		switch n := c.filled(); {
		case n == fillers:
			c.Command("cleanup") // from the beginning
		case n > 0:
			partial++
		}
		if got := rig.Met(c.Probe(proxy.IPv4, "node tcp vip1:80").Send(t.Context())); got != "pod2:8080" && got != "unreachable" {
			t.Errorf("with rules that are not complete a connection met %q", got)
		}
	}
	all := func(s status.Status) bool { return rig.Settled(s) && s.Services == fillers+1 }
	c.Start()
	c.Await(rig.Patience, "all Services", all)
	c.Reach(0, "node tcp vip1:80", "pod2:8080")
	c.upToDate(all)
	t.Logf("%d times the kill came when a part of the rules was written", partial)
}

// filled counts the fillers whose endpoints the kernel has.
func (c *cluster) filled() (n int) {
	c.T.Helper()
	w, err := nft.New(nft.Options{Family: proxy.IPv4, NetNS: c.NS.FD()})
	if err != nil {
		c.T.Fatal(err)
	}
	defer w.Close()
	for i := range fillers {
		addr := netip.AddrFrom4([4]byte{10, 96, byte(100 + i/250), byte(1 + i%250)})
		if pool, _ := w.Slots(proxy.Frontend{Addr: addr, Port: 80, Protocol: proxy.TCP}); len(pool) > 0 {
			n++
		}
	}
	return n
}

// upToDate starts the agent once more, which must find nothing to do.
func (c *cluster) upToDate(ready func(status.Status) bool) {
	c.T.Helper()
	c.Stop()
	before := c.Logged("rules written", "added=0", "removed=0")
	c.Start()
	c.Await(rig.Patience, "all Services", ready)
	if n := c.Logged("rules written", "added=0", "removed=0") - before; n != 2 {
		c.T.Errorf("another start found something to do")
	}
	c.Stop()
}
