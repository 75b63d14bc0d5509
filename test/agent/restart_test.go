package agent

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/rig"
)

// churn changes the endpoints of a Service of its own as fast as it can until the returned function is called.
func (c *cluster) churn() (stop func()) {
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		sets := [][]string{{"pod1"}, {"pod1", "pod2", "pod3"}, {"far1", "pod3"}, {}, {"far2", "far1", "pod1", "pod2"}}
		for i := 0; ; i++ {
			select {
			case <-stopping:
				return
			case <-time.After(rand.N(10 * time.Millisecond)):
				c.write("churn.yaml", service("churn", "vip2", ports), endpoints("churn", sets[i%len(sets)]...))
			}
		}
	}()
	return func() { close(stopping); <-done }
}

// TestKill kills the agent at random moments, while it starts, while it rests and while it writes, and starts it
// again. Clients of a Service that does not change notice nothing.
func TestKill(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.write("sticky.yaml", service("sticky", "vip3", sticky), endpoints("sticky", "pod1", "pod2", "pod3", "far2"))
	c.Run()
	before := c.remembered()
	clients := c.Connect(5*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080", "node udp vip1:80")
	stop := c.churn()
	for round := range 10 {
		time.Sleep(rand.N(150 * time.Millisecond))
		if code := c.End(syscall.SIGKILL); code != -1 {
			t.Errorf("the agent had ended by itself with code %d", code)
		}
		time.Sleep(rand.N(50 * time.Millisecond))
		if round%3 == 2 {
			c.Run()
		} else {
			c.Start() // and is killed within the start, or soon after it
		}
	}
	stop()
	c.Await(rig.Patience, "rules in the kernel", rig.Settled)
	rig.EndUndisturbed(t, clients, "pod2:8080", "far1:8080")
	c.write("churn.yaml", service("churn", "vip2", ports), endpoints("churn", "pod3"))
	c.Reach(rig.Soon, "pod1 tcp vip2:80", "pod3:8080")
	c.remembers(before)
	c.Stop()
}

// TestRestart stops the agent as an upgrade does, changes manifests and flags meanwhile, and starts it again.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.write("sticky.yaml", service("sticky", "vip3", sticky), endpoints("sticky", "pod1", "pod2", "pod3", "far2"))
	c.write("old.yaml", service("old", "vip2", ports), endpoints("old", "pod1"))
	c.Run()
	before := c.remembered()
	clients := c.Connect(5*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080", "outside udp vip1:80")

	c.Stop()
	c.Reach(0, "pod1 tcp vip2:80", "pod1:8080") // the rules stay
	c.Remove("old.yaml")
	c.write("new.yaml", service("new", "vip4", ports), endpoints("new", "pod3"))
	c.Run()
	c.Reach(0, "pod1 tcp vip2:80", "silence")
	c.Reach(0, "pod1 tcp vip4:80", "pod3:8080")
	c.remembers(before)

	c.Stop()
	flags := c.Args
	c.Args = append(c.Args[:len(c.Args):len(c.Args)], "--masquerade-all") // changes many elements
	c.write("new.yaml", service("new", "vip4", ports), endpoints("new", "pod2", "pod1"))
	c.Run()
	c.Reach(0, "pod1 tcp vip4:80", "pod1:8080", "pod2:8080")
	c.remembers(before)

	c.Stop()
	c.Args = append(flags[2:len(flags):len(flags)], "--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0") // changes rules
	c.Run()
	c.remembers(before)
	rig.EndUndisturbed(t, clients, "pod2:8080", "far1:8080")
	if n := c.Logged("not written"); n > 0 {
		t.Errorf("%d writes failed", n)
	}
}

// memory is what the kernel learned from packets.
type memory struct {
	sticky   map[string]string // the endpoint of a client of the Service sticky
	counters map[string]int    // how many connections a frontend of it had
}

// remembered makes the kernel learn something.
func (c *cluster) remembered() memory {
	c.T.Helper()
	m := memory{sticky: map[string]string{}}
	for _, f := range proxy.Families {
		for _, from := range []string{"pod1", "pod2", "node", "outside"} {
			text := from + " tcp vip3:80"
			m.sticky[f.String()+" "+text] = rig.Met(c.Probe(f, text).Send(c.T.Context()))
		}
	}
	m.counters = c.Counters("vip3")
	if n := m.counters["IPv4 tcp"]; n != 4 {
		c.T.Fatalf("the counters after four connections are %v", m.counters)
	}
	return m
}

// remembers checks that the kernel still knows what it learned.
func (c *cluster) remembers(m memory) {
	c.T.Helper()
	if got := c.Counters("vip3"); fmt.Sprint(got) != fmt.Sprint(m.counters) {
		c.T.Errorf("the counters are %v, were %v", got, m.counters)
	}
	for name, want := range m.sticky {
		family, text, _ := strings.Cut(name, " ")
		for _, f := range proxy.Families {
			if f.String() != family {
				continue
			}
			if got := rig.Met(c.Probe(f, text).Send(c.T.Context())); got != want {
				c.T.Errorf("%s reached %s, before %s", name, got, want)
			}
		}
	}
	m.counters["IPv4 tcp"] += len(m.sticky) / 2
	m.counters["IPv6 tcp"] += len(m.sticky) / 2
}

// TestUpgrade starts the agent where an older version left a table of another layout.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, f := range proxy.Families {
		family := rig.NFTFamily[f]
		rule := strings.NewReplacer("FAMILY", family, "VIP", "$vip1"+rig.Suffix[f], "POD", "$pod2"+rig.Suffix[f]).Replace(
			"FAMILY daddr VIP meta l4proto { tcp, udp } th dport 80 dnat FAMILY addr . port to meta l4proto map { tcp : POD . 8080, udp : POD . 8080 }")
		c.OnNode("nft", c.Expand("table "+family+` sluice { comment "Services of this node, kept by sluice (layout 0)";
			chain nat-prerouting { type nat hook prerouting priority -110; `+rule+`; }
			chain nat-output { type nat hook output priority -110; `+rule+`; }
			map service-ips { type inet_proto : mark; }
		}`))
	}
	clients := c.Connect(5*time.Millisecond, "pod1 tcp vip1:80", "node tcp vip1:80", "outside udp vip1:80")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	time.Sleep(100 * time.Millisecond)
	c.Run()
	time.Sleep(100 * time.Millisecond)
	rig.EndUndisturbed(t, clients, "pod2:8080")
	if n := c.Logged("made anew", "layout 0"); n != 2 {
		t.Errorf("the log tells %d times of a table of another layout, want once for each family", n)
	}
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod3:8080")
}
