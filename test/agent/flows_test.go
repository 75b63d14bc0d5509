package agent

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/rig"
)

// flows are TCP connections or UDP flows that stay open, one for each text and family.
type flows struct {
	t    *testing.T
	list []flow
}

type flow struct {
	*lab.Session
	text string
}

// open opens flows, whatever UDP meets.
func (c *cluster) open(texts ...string) *flows {
	c.T.Helper()
	fs := &flows{t: c.T}
	for _, text := range texts {
		for _, f := range proxy.Families {
			probe := c.Probe(f, text)
			probe.Timeout = time.Second
			s, err := probe.Dial(c.T.Context())
			if err != nil {
				c.T.Fatalf("%v: %s: %v", f, text, err)
			}
			fs.list = append(fs.list, flow{s, f.String() + ": " + text})
		}
	}
	c.T.Cleanup(func() {
		for _, f := range fs.list {
			f.Close()
		}
	})
	return fs
}

// ask sends on all flows and returns what they met.
func (fs *flows) ask() []string {
	results := make([]string, len(fs.list))
	var group sync.WaitGroup
	for i, f := range fs.list {
		group.Go(func() { results[i] = rig.Met(f.Ask()) })
	}
	group.Wait()
	return results
}

// reach sends until every flow meets one of the results of "a|b".
func (fs *flows) reach(within time.Duration, want string) {
	fs.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		late := time.Now().After(deadline)
		got := fs.ask()
		i := slices.IndexFunc(got, func(g string) bool { return !slices.Contains(strings.Split(want, "|"), g) })
		if i < 0 {
			return
		}
		if late {
			fs.t.Fatalf("%s: got %s, want %s within %v", fs.list[i].text, got[i], want, within)
		}
	}
}

// TestUDPFlows has clients that go on sending from one port while the Service changes under them.
func TestUDPFlows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", nodePorts)
	c.write("other.yaml", service("other", "vip2", ports), endpoints("other", "pod1"))
	c.Run()
	texts := []string{"pod1 udp vip1:80", "node udp vip1:80", "outside udp node:30080"}

	early := c.open(texts...) // before there is such a Service
	early.ask()
	c.write("web.yaml", web) // without endpoints
	early.reach(rig.Soon, "refused")
	c.write("web.yaml", web, endpoints("web", "pod2"))
	early.reach(rig.Soon, "pod2:8080")

	c.write("web.yaml", web, endpoints("web", "pod2", "pod3"))
	time.Sleep(100 * time.Millisecond)
	early.reach(0, "pod2:8080") // it stays where it is
	c.write("web.yaml", web, endpoints("web", "pod3"))
	early.reach(rig.Soon, "pod3:8080") // and moves when it must
	c.write("web.yaml", web, endpoints("web"))
	early.reach(rig.Soon, "refused")
	c.write("web.yaml", web, endpoints("web", "pod2"))
	early.reach(rig.Soon, "pod2:8080")

	c.Remove("web.yaml")
	early.reach(rig.Soon, "refused|silence")
	c.write("web.yaml", web, endpoints("web", "pod3"))
	early.reach(rig.Soon, "pod3:8080")

	// While the agent is away nobody deletes flows: it does so when it is back.
	c.Stop()
	c.write("web.yaml", web, endpoints("web", "far1"))
	early.reach(0, "pod3:8080")
	c.Run()
	early.reach(rig.Soon, "far1:8080")
}

// TestTCPFlows has connections that stay open while everything else changes.
func TestTCPFlows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", nodePorts)
	c.write("web.yaml", web, endpoints("web", "pod2"))
	c.Run()
	flows := c.open("pod1 tcp vip1:80", "node tcp vip1:80", "outside tcp node:30080")
	goOn := func() {
		t.Helper()
		flows.reach(0, "pod2:8080")
	}
	goOn()
	c.write("web.yaml", web, endpoints("web", "pod3", "pod2", "far1"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080", "pod3:8080", "far1:8080")
	goOn()
	c.write("web.yaml", web, endpoints("web", "pod2", "far2"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080", "far2:8080")
	goOn()
	c.Stop()
	c.Run()
	goOn()
	c.write("web.yaml", web, endpoints("web", "far2")) // a pod that terminates ends its connections itself
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "far2:8080")
	goOn()
	c.Remove("web.yaml")
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "silence|unreachable")
	goOn()
}
