package agent

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/netns"
	"sluice/test/rig"
)

// ownMachine is for machines that were made for these tests: test/qemu runs them there.
var ownMachine = flag.Bool("own-machine", false, "this machine is for the tests alone: they set its clock and its kernel parameters")

func needOwnMachine(t *testing.T) {
	t.Helper()
	if !*ownMachine {
		t.Skip("the clock and the kernel's parameters of this machine are not the test's: make test-qemu makes machines that are")
	}
}

func setClock(t *testing.T, to time.Time) {
	t.Helper()
	ts := unix.NsecToTimespec(to.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatalf("set the clock: %v", err)
	}
	if off := time.Now().Round(0).Sub(to); off < 0 || off > time.Minute {
		t.Fatalf("the clock was set to %v and is %v", to, time.Now())
	}
}

// negative is an age below zero, and ages one of years, which none of these tests takes.
var (
	negative = regexp.MustCompile(`(^|\s)-\d+[smhd]`)
	ages     = regexp.MustCompile(`\b\d{3,}d\b`)
)

// TestClockJumps sets the clock by years, both ways, as on a board without a clock of its own when the network comes or a battery is
// empty: changes go on being taken up, nothing turns without a pause, no age is wrong, and a cache is as good as before.
func TestClockJumps(t *testing.T) {
	needOwnMachine(t)
	c := newCluster(t)
	begun := time.Now()
	t.Cleanup(func() { setClock(t, begun.Round(0).Add(time.Since(begun))) })
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.write("other.yaml", service("other", "vip2", ports), endpoints("other", "pod1"))
	c.Run()
	other := c.Connect(50*time.Millisecond, "pod2 tcp vip2:80")
	date := func(year int) time.Time { return time.Date(year, time.January, 20, 3, 14, 0, 0, time.UTC) }
	hosts := []string{"pod3", "pod2"}
	for i, to := range []time.Time{time.Unix(100, 0), date(2038), date(2001), date(2100), begun.Round(0)} {
		setClock(t, to)
		host := hosts[i%2]
		c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", host))
		c.Reach(rig.Soon, "pod1 tcp vip1:80", host+":8080")
		c.Reach(0, "outside udp node:30080", host+":8080")
		for _, command := range []string{"status", "get services", "top"} {
			out, errs, code := c.Command(strings.Fields(command)...)
			if code != 0 || errs != "" || negative.MatchString(out) || command == "status" && ages.MatchString(out) {
				t.Errorf("in %d, sluice %s: exit code %d, %s\n%s", to.Year(), command, code, errs, out)
			}
		}
		s, err := c.Status()
		if now := time.Now(); err != nil || s.Started.After(now) || now.Sub(s.Started) > time.Hour || now.Sub(s.Families[0].LastSync) > time.Hour {
			t.Errorf("in %d: %v; started %v, written %v", to.Year(), err, s.Started, s.Families[0].LastSync)
		}
		time.Sleep(3 * time.Second) // what follows a change
		busy := c.CPU()
		time.Sleep(5 * time.Second)
		if busy = c.CPU() - busy; busy > time.Second {
			t.Errorf("in %d the agent takes %v of 5 s without a change", to.Year(), busy)
		}
		if i%2 == 0 { // an earlier run was at another time
			c.Stop()
			setClock(t, to.AddDate([]int{5, -5}[i/2%2], 0, 0))
			c.Run()
			c.Reach(0, "pod1 tcp vip1:80", host+":8080")
			c.AwaitLog(rig.Soon, "Services are served from the cache")
			if now := time.Now(); now.Before(to) {
				c.AwaitNoProblem(rig.Soon)
			}
		}
	}
	rig.EndUndisturbed(t, other, "pod1:8080")
	t.Logf("log of the agent:\n%s", c.Log.String())
}

// TestFullConntrack fills the kernel's table of connections: new ones find no room, which is not the agent's to change. Those that there are
// go on, changes are taken up, stale flows deleted; sluice check and the status say it (the metrics are
// asked for by a connection, too). When there is room again all is well.
func TestFullConntrack(t *testing.T) {
	needOwnMachine(t)
	const parameter = "/proc/sys/net/netfilter/nf_conntrack_max"
	was, err := os.ReadFile(parameter)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := os.Open("/proc/1/ns/net") // where alone it can be set
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { machine.Close() })
	set := func(value string) {
		t.Helper()
		if err := netns.Do(int(machine.Fd()), func() error { return os.WriteFile(parameter, []byte(value), 0o644) }); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(strings.TrimSpace(string(was))) })
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	held := c.Hold("pod1 tcp vip1:80", "outside tcp node:30080")
	udp := c.open("pod1 udp vip1:80", "outside udp node:30080")
	udp.reach(rig.Soon, "pod2:8080")

	set("1") // the kernel counts for each network namespace, and drops at once what is not one of its flows
	full := c.Probe(proxy.IPv4, "pod3 tcp vip1:80")
	if got := rig.Met(full.Send(t.Context())); got != "silence" {
		t.Fatalf("the table is not full: a new connection met %s", got)
	}
	for _, h := range held {
		h.StillOpen(t)
	}
	out, _, code := c.Command("check", "--manifests", c.Manifests)
	if code == 0 || !strings.Contains(out, "new ones are dropped") || !strings.Contains(out, "sysctl -w net.netfilter.nf_conntrack_max=") {
		t.Errorf("sluice check: exit code %d\n%s", code, out)
	}
	if s, err := c.Status(); err != nil || s.Flows == nil || !s.Flows.Full() {
		t.Errorf("the status has flows %v (%v), want that there is no room", s.Flows, err)
	}
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod3")) // the flows to pod2 are stale
	c.Await(rig.Soon, "the change in the kernel", func(s status.Status) bool { return s.Healthy && !s.Families[0].Pending && !s.Families[1].Pending })
	c.AwaitLog(rig.Soon, "flows to endpoints that are gone deleted")

	set("65536")
	c.Reach(rig.Soon, "pod2 tcp vip1:80", "pod3:8080")
	udp.reach(rig.Soon, "pod3:8080")
	if limit, used := rig.Metric(t, c.Lab.Node, "sluice_conntrack_limit"), rig.Metric(t, c.Lab.Node, "sluice_conntrack_entries"); limit != 65536 || used < 1 {
		t.Errorf("the metrics say %v of %v flows", used, limit)
	}
	if out, _, _ := c.Command("check", "--manifests", c.Manifests); strings.Contains(out, "new ones are dropped") {
		t.Errorf("sluice check, with room again:\n%s", out)
	}
	t.Logf("log of the agent:\n%s", c.Log.String())
}
