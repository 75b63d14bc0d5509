package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/test/rig"
)

// programs makes the agent find other programs under the plain names of iptables: the scripts that script returns for a
// program's name.
func (c *cluster) programs(script func(name string) string) {
	c.T.Helper()
	dir := c.T.TempDir()
	for _, f := range proxy.Families {
		for _, suffix := range []string{"", "-save", "-restore"} {
			name := iptables.Command(f) + suffix
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script(name)+"\n"), 0o755); err != nil {
				c.T.Fatal(err)
			}
		}
	}
	c.Wrapper = []string{"env", "PATH=" + dir + ":" + os.Getenv("PATH")}
}

// variant makes the plain names lead to a variant of iptables.
func (c *cluster) variant(name string) {
	c.T.Helper()
	c.programs(func(program string) string {
		base, suffix, _ := strings.Cut(program, "-")
		if suffix != "" {
			suffix = "-" + suffix
		}
		return fmt.Sprintf(`exec %s%s%s "$@"`, base, strings.TrimPrefix(name, "iptables"), suffix)
	})
}

// hanging makes the programs whose names match a pattern of expr hang, with a child that holds the pipes, from hang to work.
func (c *cluster) hanging(pattern string) (hang, work func()) {
	c.T.Helper()
	file := filepath.Join(c.Dir, "hang")
	c.programs(func(name string) string {
		return fmt.Sprintf("if test -e %s && expr %s : '%s' >/dev/null; then sleep 100; fi; exec %s \"$@\"", file, name, pattern,
			strings.Replace(name, "tables", "tables-nft", 1))
	})
	must := func(err error) {
		c.T.Helper()
		if err != nil {
			c.T.Fatal(err)
		}
	}
	return func() { must(os.WriteFile(file, nil, 0o600)) }, func() { must(os.Remove(file)) }
}

// TestChangeVariant goes from one variant of iptables to the other and back.
func TestChangeVariant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{iptables.Legacy, iptables.NFT} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("this machine has not both variants of iptables: %v", err)
		}
	}
	c := newCluster(t)
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2", "far1"))
	c.variant(iptables.Legacy)
	c.Run()
	clients := c.Connect(5*time.Millisecond, "pod1 tcp vip1:80", "node udp vip1:80")
	for _, name := range []string{iptables.NFT, iptables.Legacy} {
		c.Stop()
		c.variant(name)
		c.Run()
		c.Eventually(rig.Patience, "rules in "+name+" alone", func() bool {
			for _, variant := range []string{iptables.NFT, iptables.Legacy} {
				for _, family := range []string{"iptables", "ip6tables"} {
					has := strings.Contains(c.OnNode(strings.Replace(variant, "iptables", family, 1)+"-save"), "SLUICE-")
					if has != (variant == name) {
						return false
					}
				}
			}
			return true
		})
	}
	rig.EndUndisturbed(t, clients, "pod2:8080", "far1:8080")
}

// TestHangingIPTables has iptables-restore never end: what is there stays, and the agent can be ended.
func TestHangingIPTables(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	hang, work := c.hanging(".*restore")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	hang()
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	time.Sleep(time.Second)
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	start := time.Now()
	if code := c.End(syscall.SIGTERM); code != 0 || time.Since(start) > 5*time.Second {
		t.Errorf("ended with %d after %v", code, time.Since(start))
	}
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	work()
	c.Run()
	c.Reach(0, "pod1 tcp vip1:80", "pod3:8080")
}

// TestIncompatibleTable has nft write to a table of iptables what iptables has no words for.
func TestIncompatibleTable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	c.variant(iptables.NFT)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	c.OnNode("nft", "add rule ip nat PREROUTING meta mark set numgen random mod 2")
	s := c.Await(rig.Patience, "an error", func(s status.Status) bool { return s.Families[0].LastError != "" })
	if s.Healthy || !rig.ContainsAll(s.Families[0].LastError, []string{"table nat", "--proxy-mode=nftables"}) {
		t.Errorf("the status is %+v", s)
	}
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	c.Stop()
	if out, errs, code := c.Command("cleanup"); code != 1 || !strings.Contains(errs, "cannot list table nat") {
		t.Errorf("cleanup: code %d, %s%s", code, out, errs)
	}
	if out, errs, code := c.Command("cleanup", "--kube-proxy"); code != 1 || !strings.Contains(errs, "cannot list table nat") {
		t.Errorf("cleanup --kube-proxy: code %d, %s%s", code, out, errs)
	}
	// The mode that the message names works, and says that it cannot remove the other's rules.
	c.Args = append(c.Args, "--proxy-mode", "nftables")
	c.Run()
	c.AwaitLog(rig.Patience, "may be left", "cannot list table nat")
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	c.OnNode("nft", "flush chain ip nat PREROUTING")
	c.Eventually(rig.Patience, "the other mode's rules gone", func() bool { return !strings.Contains(c.OnNode("iptables-nft-save"), "SLUICE-") })
}

// TestForeignIPTables has other programs change the rules of iptables, again and again, and hold its lock: clients
// are served again right after.
func TestForeignIPTables(t *testing.T) {
	const flushes = 15
	for _, variant := range []string{iptables.NFT, iptables.Legacy} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(variant); err != nil {
				t.Skipf("this machine has no %s: %v", variant, err)
			}
			c := newCluster(t)
			c.Args = append(c.Args, "--proxy-mode", "iptables")
			c.variant(variant)
			lockFile := filepath.Join(c.Dir, "lock")
			c.Wrapper = append(c.Wrapper, "XTABLES_LOCKFILE="+lockFile)
			c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
			c.Run()
			shell := func(script string) {
				c.OnNode("env", "XTABLES_LOCKFILE="+lockFile, "sh", "-ec", strings.ReplaceAll(script, "IPT", variant))
			}
			for name, script := range map[string]string{
				"flush nat, once":            "IPT -t nat -F",
				"flush nat, again and again": fmt.Sprintf("for i in $(seq %d); do IPT -t nat -F; sleep .3; done", flushes),
				"delete our jump":            `IPT -t nat -D PREROUTING -m comment --comment "sluice: Services" -j SLUICE-SERVICES`,
				"restore without ours":       `printf '*nat\n-A POSTROUTING -j RETURN\nCOMMIT\n*filter\nCOMMIT\n' | IPT-restore`,
			} {
				shell(script)
				c.ReachIn(proxy.IPv4, rig.Patience, "outside tcp node:30080", "pod2:8080") // 2 s, where nothing else runs
				c.ReachIn(proxy.IPv4, rig.Patience, "pod1 tcp vip1:80", "pod2:8080")
				if t.Failed() {
					t.Fatal(name)
				}
			}
			if n := c.Logged("another program changed", "IPv4"); n < 1 || n > 3 {
				t.Errorf("what happened is logged %d times", n)
			}
			if s, err := c.Status(); err != nil || s.Families[0].Repairs < 5 {
				t.Errorf("the status does not tell of the repairs: %+v, %v", s.Families, err)
			}
			if variant == iptables.NFT {
				return // has no lock
			}
			lock, err := os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod3"))
			time.Sleep(10 * time.Second)
			c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod2:8080")
			if n := c.Logged("not written", "holds the xtables lock", "IPv4"); n != 1 {
				t.Errorf("the lock is logged %d times", n)
			}
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
				t.Fatal(err)
			}
			c.ReachIn(proxy.IPv4, rig.Patience, "pod1 tcp vip1:80", "pod3:8080")
		})
	}
}

// TestFamilyComesLate has the programs of one family fail at the start.
func TestFamilyComesLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	fine := filepath.Join(c.Dir, "fine")
	c.programs(func(name string) string {
		variant := strings.Replace(name, "tables", "tables-nft", 1)
		if strings.HasPrefix(name, "ip6") && strings.HasSuffix(name, "-save") {
			return fmt.Sprintf(`test -e %s || { echo no >&2; exit 1; }; exec %s "$@"`, fine, variant)
		}
		return fmt.Sprintf(`exec %s "$@"`, variant)
	})
	c.Args = append(c.Args, "--log-level", "debug")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Start()
	c.Await(rig.Patience, "IPv4 alone", func(s status.Status) bool {
		return len(s.Families) == 2 && !s.Families[0].LastSync.IsZero() && s.Families[1].LastError != ""
	})
	c.ReachIn(proxy.IPv4, rig.Soon, "pod1 tcp vip1:80", "pod2:8080")
	if err := os.WriteFile(fine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ReachIn(proxy.IPv6, rig.Patience, "pod1 tcp vip1:80", "pod2:8080")
	c.Await(rig.Patience, "health", func(s status.Status) bool { return s.Healthy })
	// Changes by others are noticed there, too.
	c.OnNode("ip6tables-nft", "-t", "nat", "-F", "PREROUTING")
	c.Eventually(rig.Patience, "a repair", func() bool { return strings.Contains(c.OnNode("ip6tables-nft-save", "-t", "nat"), "-A PREROUTING") })
}

// TestOneFamilyHangs has the programs of one family hang: the other is served, if late at first.
func TestOneFamilyHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	hang, _ := c.hanging("ip6.*restore")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	hang()
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.AwaitLog(3*rig.Patience, "not written", "IPv6", "it was killed after")
	for _, pod := range []string{"pod1", "pod3"} {
		c.write("web.yaml", service("web", "vip1", ports), endpoints("web", pod))
		c.ReachIn(proxy.IPv4, rig.Patience, "outside tcp vip1:80", pod+":8080")
	}
}

// TestChangeModeOfOneFamily has one family fail in the new mode: the other's rules of the mode before go all the same.
func TestChangeModeOfOneFamily(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	c.Stop()
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	c.programs(func(name string) string {
		variant := strings.Replace(name, "tables", "tables-nft", 1)
		if name != "ip6tables-restore" {
			return fmt.Sprintf(`exec %s "$@"`, variant)
		}
		// Fails at what the agent writes, and not at what it tries first.
		return fmt.Sprintf(`input=$(cat); case "$input" in *SLUICE-SERVICES*) echo no >&2; exit 1;; esac; printf '%%s\n' "$input" | %s "$@"`, variant)
	})
	c.Start()
	c.Eventually(rig.Patience, "nftables' rules gone in IPv4 alone", func() bool {
		return !c.TryOnNode("nft", "list", "table", "ip", "sluice") && c.TryOnNode("nft", "list", "table", "ip6", "sluice")
	})
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
}

// TestRepairWithoutObjects loses the cache file and the source: rules are kept as they were planned.
func TestRepairWithoutObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Args = append(c.Args, "--proxy-mode", "iptables")
	c.variant(iptables.NFT)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	if err := os.Rename(c.Manifests, c.Manifests+"-away"); err != nil {
		t.Fatal(err)
	}
	c.AwaitProblem(rig.Patience, "no such directory")
	s, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.Cache.Path, 0); err != nil {
		t.Fatal(err)
	}
	c.Command("get", "services") // reads the file
	c.AwaitLog(rig.Patience, "the cache file was lost")
	c.OnNode("iptables-nft", "-t", "nat", "-F", "PREROUTING")
	c.ReachIn(proxy.IPv4, rig.Patience, "outside tcp vip1:80", "pod2:8080")
	if err := os.Rename(c.Manifests+"-away", c.Manifests); err != nil {
		t.Fatal(err)
	}
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.ReachIn(proxy.IPv4, rig.Patience, "outside tcp vip1:80", "pod3:8080")
}
