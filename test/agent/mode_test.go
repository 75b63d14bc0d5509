package agent

import (
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/rig"
)

// TestChangeMode goes from nftables to iptables and back. Clients that connect all the time, and
// connections that stay open, notice nothing, and of the mode before nothing is left.
func TestChangeMode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	flags := c.Args
	c.Run()
	clients := c.Connect(5*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080", "node udp vip1:80")
	open := c.Hold("pod1 tcp vip1:80", "outside tcp node:30080")
	for _, mode := range []string{"iptables", "nftables", "iptables", "auto"} {
		c.Stop()
		c.Args = append(flags[:len(flags):len(flags)], "--proxy-mode", mode)
		c.Run()
		want := strings.Replace(mode, "auto", "nftables", 1)
		c.Await(rig.Soon, want, func(s status.Status) bool { return s.Mode == want })
		c.Eventually(rig.Patience, "the other mode's rules gone", func() bool {
			nft := c.TryOnNode("nft", "list", "table", "ip", "sluice") || c.TryOnNode("nft", "list", "table", "ip6", "sluice")
			ipt := strings.Contains(c.OnNode("iptables-save")+c.OnNode("ip6tables-save"), "SLUICE-")
			return nft == (want == "nftables") && ipt == (want == "iptables")
		})
		for _, h := range open {
			h.StillOpen(t)
		}
	}
	rig.EndUndisturbed(t, clients, "pod2:8080", "far1:8080")
	c.Stop()
	if out, errs, code := c.Command("cleanup"); code != 0 {
		t.Errorf("cleanup: code %d, %s%s", code, out, errs)
	}
	for _, f := range proxy.Families {
		c.ReachIn(f, 0, "pod1 tcp vip1:80", "silence|unreachable|refused")
	}
}
