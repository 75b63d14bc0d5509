package agent

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sluice/proxy"
	"sluice/test/rig"
)

// TestLostNotifications keeps the agent from reading until the kernel has more to tell than its sockets hold. What it would have told then
// is lost, a change of its rules or of the node's addresses: the agent looks.
func TestLostNotifications(t *testing.T) {
	t.Run("rules", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		for _, f := range proxy.Families { // other programs can change it
			c.OnNode("nft", "add table "+rig.NFTFamily[f]+` sluice { comment "`+tableComment+`"; }`)
		}
		others := "add table ip other\nadd set ip other many { type ipv4_addr; }\n"
		for i := range 100 {
			others += "add element ip other many { 203." + strconv.Itoa(i) + ".0.1"
			for k := 1; k < 200; k++ {
				others += fmt.Sprintf(", 203.%d.%d.1", i, k)
			}
			others += " }\n"
		}
		c.write("others.nft", others)
		c.loses(func() { c.OnNode("nft", "-f", filepath.Join(c.Manifests, "others.nft")) }, func() {
			for _, f := range proxy.Families {
				c.OnNode("nft", "flush map "+rig.NFTFamily[f]+" sluice service-ips")
			}
		})
		c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080")
	})
	t.Run("addresses", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		var routes strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&routes, "route add 10.9.%d.%d/32 dev eth0\nroute delete 10.9.%[1]d.%[2]d/32 dev eth0\n", i>>8, i&255)
		}
		c.loses(func() {
			if err := c.NS.IP(t.Context(), routes.String()); err != nil {
				t.Fatal(err)
			}
		}, func() {
			for f, fresh := range map[proxy.Family]netip.Prefix{proxy.IPv4: netip.MustParsePrefix("192.168.50.77/24"), proxy.IPv6: netip.MustParsePrefix("fd00:192:168:50::77/64")} {
				c.OnNode("ip", "address", "delete", fmt.Sprintf("%v/%d", c.Names["node"+rig.Suffix[f]], fresh.Bits()), "dev", "eth0")
				c.OnNode("ip", "address", "add", fresh.String(), "dev", "eth0", "nodad")
				c.Names["fresh"+rig.Suffix[f]] = fresh.Addr()
			}
		})
		c.Reach(rig.Soon, "outside tcp fresh:30080", "pod2:8080")
	})
}

// loses has the agent lose what is told of a change behind others.
func (c *cluster) loses(others, change func()) {
	c.T.Helper()
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	c.Reach(0, "outside tcp node:30080", "pod2:8080")
	if err := c.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.T.Fatal(err)
	}
	before := c.lost()
	others()
	full := c.lost()
	change()
	if lost := c.lost(); full == before || lost == full {
		c.T.Errorf("lost were %d messages of others, and %d of the change: too few to show anything", full-before, lost-full)
	}
	if err := c.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.T.Fatal(err)
	}
}

// lost is how many messages found no room in the agent's netlink sockets (the column Drops of /proc/net/netlink).
func (c *cluster) lost() (n int) {
	c.T.Helper()
	for line := range strings.Lines(c.OnNode("cat", "/proc/net/netlink")) {
		columns := strings.Fields(line)
		drops, err := strconv.Atoi(columns[len(columns)-2])
		if err == nil {
			n += drops
		}
	}
	return n
}
