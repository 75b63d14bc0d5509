package agent

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/test/rig"
)

// TestDrift has another program change single things in the kernel. Each is mended within a second, with the reserved
// table, too, where a nat chain of another table can come first.
func TestDrift(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(map[bool]string{true: "shared table", false: "reserved table"}[shared], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			if shared {
				for _, f := range proxy.Families {
					c.OnNode("nft", "add table "+rig.NFTFamily[f]+` sluice { comment "`+tableComment+`"; }`)
				}
			}
			c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
			c.Run()
			element := "{ " + c.Expand("$vip1") + " . tcp . 80 }"
			commands := []string{
				"add table ip evil; add chain ip evil pre { type nat hook prerouting priority -100; }; add rule ip evil pre ip daddr " + c.Expand("$vip1") + " dnat to 192.0.2.99",
				"add chain ip evil earlier { type nat hook prerouting priority -150; }; add rule ip evil earlier ip daddr " + c.Expand("$vip1") + " dnat to 192.0.2.99",
			}
			if shared {
				commands = append(commands,
					"delete element ip sluice service-ips "+element,
					"delete element ip sluice service-ips "+element+"; add element ip sluice service-ips { "+c.Expand("$vip1")+" . tcp . 80 : drop }",
					"flush chain ip sluice nat-prerouting", "flush chain ip sluice lb-2",
					"insert rule ip sluice nat-prerouting meta l4proto tcp drop",
					"add table ip sluice { flags dormant; }",
					"add chain ip sluice answers-forward { policy drop; }",
					"add element ip sluice cluster-ips { "+c.Expand("$pod2")+" }",
					"delete table ip sluice") // the last: it is made anew, and reserved where that can be
			}
			for i, command := range commands {
				begun := time.Now()
				c.OnNode("nft", command)
				s := c.Await(time.Second, "nft "+command+": a repair", func(s status.Status) bool {
					return s.Families[0].Repairs > i && !s.Families[0].Pending && len(s.Drift) > 0
				})
				t.Logf("%.0f ms: %s", time.Since(begun).Seconds()*1000, command)
				last := s.Drift[len(s.Drift)-1]
				if last.Family != proxy.IPv4 { // it has no more
					for _, d := range s.Drift {
						if d.Family == proxy.IPv4 {
							last = d
						}
					}
				}
				if last.Program != "nft" || len(last.Changes) == 0 {
					t.Errorf("nft %s: status says %+v", command, last)
				}
				if d, err := (status.Client{Socket: c.Socket()}).Diff(t.Context()); err != nil || d.Count != 0 {
					t.Errorf("nft %s: not mended: %+v, %v", command, d, err)
				}
				c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod2:8080|far1:8080")
			}
		})
	}
}

// TestDriftIPTables does so with both variants of iptables, which tell neither that nor who it was: the agent looks twice a second.
func TestDriftIPTables(t *testing.T) {
	for _, variant := range []string{iptables.NFT, iptables.Legacy} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(variant); err != nil {
				t.Skipf("this machine has not both variants of iptables: %v", err)
			}
			c := newCluster(t)
			c.Args = append(c.Args, "--proxy-mode", "iptables")
			c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
			c.variant(variant)
			c.Run()
			if out, errs, code := c.Command("explain", "web", "--live"); code != 0 || strings.Count(out, "the kernel's rules do just that") != strings.Count(out, "forwarded:") {
				t.Errorf("explain: code %d, %s%s", code, out, errs)
			}
			jump := `-m comment --comment "sluice: Services" -j SLUICE-SERVICES`
			for i, tt := range []struct{ command, what string }{
				{"-t nat -F SLUICE-SERVICES", "rule ip nat SLUICE-SERVICES"},
				{"-t nat -I SLUICE-SERVICES -p tcp -j RETURN", "rule ip nat SLUICE-SERVICES"},
				{"-t nat -D PREROUTING " + jump, "jump ip nat PREROUTING"},
				{"-t nat -I PREROUTING -d " + c.Expand("$vip1") + " -j ACCEPT", "jump ip nat PREROUTING"},
				{"-t nat -F", "jump ip nat"},
				{"-t filter -I SLUICE-ANSWERS -j DROP", "rule ip filter SLUICE-ANSWERS"},
			} {
				begun := time.Now()
				c.OnNode("sh", "-c", variant+" "+tt.command)
				s := c.Await(3*time.Second, variant+" "+tt.command+": a repair", func(s status.Status) bool {
					return s.Families[0].Repairs > i && !s.Families[0].Pending && len(s.Drift) > 0
				})
				t.Logf("%.0f ms: %s", time.Since(begun).Seconds()*1000, tt.command)
				if last := s.Drift[len(s.Drift)-1]; last.Program != "" || !strings.Contains(fmt.Sprint(last.Changes), tt.what) {
					t.Errorf("%s: status says %+v, want %s", tt.command, last, tt.what)
				}
				if d, err := (status.Client{Socket: c.Socket()}).Diff(t.Context()); err != nil || d.Count != 0 {
					t.Errorf("%s: not mended: %+v, %v", tt.command, d, err)
				}
				c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod2:8080|far1:8080")
			}
		})
	}
}

// TestFight has another program change the same again and again: it is mended each time, and does not take the machine.
func TestFight(t *testing.T) {
	c := newCluster(t)
	c.OnNode("nft", `add table ip sluice { comment "`+tableComment+`"; }`)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.Run()
	for i := range 15 {
		c.OnNode("nft", "flush chain ip sluice nat-prerouting")
		c.Await(rig.Soon, "a repair", func(s status.Status) bool { return s.Families[0].Repairs > i && !s.Families[0].Pending })
	}
	s, err := c.Status()
	if err != nil || len(s.Drift) == 0 {
		t.Fatalf("%+v, %v", s.Drift, err)
	}
	if d := s.Drift[len(s.Drift)-1]; !d.Fight || d.Times != 15 || d.Program != "nft" {
		t.Errorf("%+v", d)
	}
	text := fmt.Sprint(s.Sections(time.Now()))
	if !strings.Contains(text, "15 times (again and again") {
		t.Errorf("%s", text)
	}
}
