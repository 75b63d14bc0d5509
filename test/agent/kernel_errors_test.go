package agent

import (
	"context"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/test/rig"
)

// TestNoCapability runs the agent without CAP_NET_ADMIN: it says what is missing, ends at once, as rights do not come
// later, and disturbs nothing. So does cleanup.
func TestNoCapability(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	c.Stop()
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.Wrapper = []string{"setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"}
	for _, command := range []string{"agent", "cleanup", "cleanup --kube-proxy"} {
		out, errs, code := c.Command(strings.Fields(command)...)
		if code != 1 || out != "" || errs != "sluice: this needs root or CAP_NET_ADMIN; run it as root, by sudo for example\n" {
			t.Errorf("%s: exit code %d, want 1 and what is missing: %s%s", command, code, out, errs)
		}
	}
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080") // what was there stays

	c.Wrapper = nil
	c.Run()
	c.Reach(0, "pod1 tcp vip1:80", "pod3:8080")
}

// TestOneFamilyFails has another program hold the IPv6 table: IPv4 is served all the same.
func TestOneFamilyFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	other, err := nft.New(nft.Options{Family: proxy.IPv6, NetNS: c.NS.FD()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Reconcile(t.Context(), proxy.NewState(proxy.IPv6, proxy.Settings{})); err != nil {
		t.Fatal(err)
	}
	if c.TryOnNode("nft", "add", "chain", "ip6", "sluice", "intruder") {
		t.Skip("this kernel cannot reserve tables")
	}
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Start()
	s := c.Await(rig.Patience, "IPv4 rules and an IPv6 error", func(s status.Status) bool {
		return len(s.Families) == 2 && !s.Families[0].LastSync.IsZero() && s.Families[1].LastError != ""
	})
	if s.Healthy || len(s.Reasons) != 1 || !rig.ContainsAll(s.Reasons[0], []string{"IPv6", "belongs to another running program"}) {
		t.Errorf("the status is %+v", s)
	}
	c.ReachIn(proxy.IPv4, rig.Soon, "pod1 tcp vip1:80", "pod2:8080")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.ReachIn(proxy.IPv4, rig.Soon, "pod1 tcp vip1:80", "pod3:8080")

	if err := other.Cleanup(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.ReachIn(proxy.IPv6, rig.Patience, "pod1 tcp vip1:80", "pod3:8080")
	c.Await(rig.Soon, "health", func(s status.Status) bool { return s.Healthy && rig.Settled(s) })
	if c.Logged("rules can be written again", "IPv6") == 0 {
		t.Error("the log does not say that the error is over")
	}
}

// TestNoIPv6 disables IPv6 on the node, before the agent starts and while it runs.
func TestNoIPv6(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	disable := func(value string) {
		t.Helper()
		if err := c.NS.Sysctl("ipv6/conf/all/disable_ipv6", value); err != nil {
			t.Fatal(err)
		}
	}
	disable("1")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod2:8080")
	c.ReachIn(proxy.IPv4, 0, "outside tcp node:30080", "pod2:8080")
	for _, f := range proxy.Families {
		c.Table(f) // exists
	}
	if n := c.Logged("level=ERROR"); n > 0 {
		t.Errorf("%d errors are logged", n)
	}
	disable("0")
	disable("1")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod3"))
	c.ReachIn(proxy.IPv4, rig.Soon, "outside tcp node:30080", "pod3:8080")
	c.Stop()
}
