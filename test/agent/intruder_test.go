package agent

import (
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/rig"
)

// tableComment is what the agent knows its tables by.
const tableComment = "Services of this node, kept by sluice (layout 1)"

// TestFlush has other programs remove the rules while clients connect. Where the kernel reserves tables (6.9 and
// later) they cannot; else the agent mends that.
func TestFlush(t *testing.T) {
	tests := []struct {
		name string
		// shared has the agent find its tables made already without an owner, as it makes them on older kernels.
		shared bool
		// commands of nft. A table that goes is made anew, and reserved where that can be: in a shared one it goes last.
		commands []string
	}{
		{"reserved table", false, []string{"flush ruleset", "delete table ip sluice", "delete table ip6 sluice",
			"flush chain ip sluice nat-prerouting; flush map ip sluice service-ips", "delete chain ip6 sluice nat-output"}},
		{"shared table", true, []string{"flush chain ip sluice nat-prerouting", "flush map ip sluice service-ips; flush map ip6 sluice service-ips",
			"flush table ip6 sluice", "delete chain ip sluice nat-output", "flush map ip sluice endpoints", "flush ruleset"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			for _, f := range proxy.Families {
				if test.shared {
					c.OnNode("nft", "add table "+rig.NFTFamily[f]+` sluice { comment "`+tableComment+`"; }`)
				}
			}
			c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
			c.Run()
			if !test.shared && c.TryOnNode("nft", "add", "chain", "ip", "sluice", "intruder") {
				t.Skip("this kernel cannot reserve tables")
			}

			wait := rig.ClientPatience
			if test.shared {
				wait = 100 * time.Millisecond // a client whose packet was dropped sends it again after a second only
			}
			clients := c.ConnectFor(wait, 5*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080", "outside udp vip1:80")
			flows := c.open("pod1 udp vip1:80", "outside udp node:30080")
			for _, command := range test.commands {
				time.Sleep(100 * time.Millisecond)
				if c.TryOnNode("nft", command) != (test.shared || command == "flush ruleset") {
					t.Errorf("nft %s: unexpected result", command)
				}
				fresh := c.open("pod1 udp vip1:80", "outside udp node:30080", "node udp vip1:80")
				fresh.ask() // what begins now may go untranslated, and must not for good
				fresh.reach(rig.Soon, "pod2:8080|far1:8080")
				flows.reach(0, "pod2:8080|far1:8080")
				time.Sleep(50 * time.Millisecond) // the clients see the end of it
			}
			if !test.shared {
				rig.EndUndisturbed(t, clients, "pod2:8080", "far1:8080")
			} else {
				gap := rig.EndInterrupted(t, clients, rig.Soon, "pod2:8080", "far1:8080")
				t.Logf("clients were cut off for %v at most", gap.Round(time.Millisecond))
				if s, err := c.Status(); err != nil || s.Families[0].Repairs != 5 || s.Families[1].Repairs != 3 {
					t.Errorf("the status does not tell of just the repairs: %+v, %v", s.Families, err)
				}
			}
		})
	}
}
