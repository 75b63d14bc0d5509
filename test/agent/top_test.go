package agent

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/procfs"
	"sluice/test/pty"
	"sluice/test/rig"
)

// top starts sluice top on a terminal, beside the agent.
func (c *cluster) top(p *pty.Terminal, args ...string) *exec.Cmd {
	c.T.Helper()
	cmd := exec.Command(rig.Binary, append([]string{"top", "--socket", c.Socket(), "--config", c.Config()}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm"}
	p.Own(cmd)
	if err := c.NS.Start(cmd); err != nil {
		c.T.Fatal(err)
	}
	return cmd
}

// ends waits until a command ends with an exit code.
func ends(t *testing.T, cmd *exec.Cmd, code int) {
	t.Helper()
	late := time.AfterFunc(rig.Patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != code {
		t.Errorf("it ended with %v, want exit code %d", err, code)
	}
}

// cells are the columns of a Service's line.
func cells(text, service string) []string {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 5 && f[0] == "default/"+service {
			return f
		}
	}
	return make([]string, 5)
}

// TestTop has clients of a Service whose endpoints go, so that the kernel counts anew, and an agent that ends meanwhile.
func TestTop(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.write("idle.yaml", service("idle", "vip2", ports), strings.Replace(endpoints("idle", "pod2", "pod3"), "nodeName: node}\n", "nodeName: node, conditions: {ready: false}}\n", 1))
	c.Run()
	p := pty.New(t, 80, 24)
	before := p.State()
	cmd := c.top(p)
	p.Await(rig.Patience, "both Services", func(text string) bool {
		web, idle := cells(text, "web"), cells(text, "idle")
		return web[3] == "2/2" && idle[3] == "1/2,2/2" && idle[1] == "0" && idle[2] == "0"
	})
	streams := c.Connect(10*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080")
	p.Await(rig.Patience, "the rate", func(text string) bool {
		rate, err := strconv.ParseFloat(cells(text, "web")[1], 64)
		return err == nil && rate > 20 && strings.Contains(text, "default/web") && strings.Index(text, "default/web") < strings.Index(text, "default/idle")
	})
	rig.EndUndisturbed(t, streams, "pod2:8080", "far1:8080")
	p.Await(rig.Patience, "no rate", func(text string) bool { return cells(text, "web")[1] == "0" })
	counted := regexp.MustCompile(`packets (\d+)`)
	total := 0
	for _, family := range []string{"ip", "ip6"} {
		for _, m := range counted.FindAllStringSubmatch(c.OnNode("nft", "list", "map", family, "sluice", "service-ips"), -1) {
			n, _ := strconv.Atoi(m[1])
			total += n
		}
	}
	if got := cells(strings.Join(p.Lines(), "\n"), "web"); got[2] != strconv.Itoa(total) || total < 50 {
		t.Errorf("%q, and the kernel counted %d", got, total)
	}
	// What was counted is not lost, and no rate is negative, when the kernel begins at 0 again.
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web"))
	p.Await(rig.Patience, "no endpoints", func(text string) bool { return cells(text, "web")[3] == "<none>" || cells(text, "web")[3] == "0/0" })
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080")
	p.Await(rig.Patience, "more connections than before", func(text string) bool {
		web := cells(text, "web")
		now, err := strconv.Atoi(web[2])
		if strings.HasPrefix(web[1], "-") {
			t.Errorf("the rate is %s", web[1])
		}
		return err == nil && now > total && now < total+100 && web[3] == "1/1"
	})

	// The agent ends and starts again.
	c.Stop()
	p.Await(rig.Patience, "that no agent is running", func(text string) bool { return strings.Contains(text, "no sluice agent is running") })
	c.Run()
	p.Await(rig.Patience, "the agent again", func(text string) bool {
		return !strings.Contains(text, "no sluice agent") && cells(text, "web")[1] == "0"
	})
	p.Type("q")
	ends(t, cmd, 0)
	p.AwaitState(rig.Soon, before)

	// Control-Z gives the terminal back until it goes on.
	cmd = c.top(p)
	p.Await(rig.Patience, "the table", func(text string) bool { return cells(text, "web")[3] == "1/1" })
	p.Type("\x1a")
	p.AwaitState(rig.Patience, before)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.Await(rig.Patience, "the table", func(text string) bool { return cells(text, "web")[3] == "1/1" })
	p.Resize(40, 10)
	p.Await(rig.Patience, "a narrow table", func(text string) bool { return strings.Contains(text, "\nSERVICE                 NEW/S  ENDPOINTS\n") })
	p.Resize(80, 24)
	p.Type("\x03")
	ends(t, cmd, 0)
	p.AwaitState(rig.Soon, before)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		cmd = c.top(p)
		p.Await(rig.Patience, "the table", func(text string) bool { return p.State().Other && cells(text, "web")[3] == "1/1" })
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		ends(t, cmd, 0)
		p.AwaitState(rig.Soon, before)
	}

	// Without a terminal.
	out, errs, code := c.Command("top")
	if web := cells(out, "web"); code != 0 || errs != "" || web[1] != "0" || web[3] != "1/1" || strings.Contains(out, "\x1b") {
		t.Errorf("code %d, %s\n%s", code, errs, out)
	}
	if out, _, code = c.Command("top", "--count", "2", "-n", "none"); code != 0 || strings.Count(out, "node, nftables: 0 Services") != 2 {
		t.Errorf("code %d\n%s", code, out)
	}
}

// TestTopInIPTables has a mode that counts nothing.
func TestTopInIPTables(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--proxy-mode", "iptables")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.Run()
	begun := time.Now()
	out, errs, code := c.Command("top")
	want := "node, iptables: 1 Service\nThe kernel counts no connections of a Service in the mode iptables.\n"
	if fmt.Sprint(cells(out, "web")) != "[default/web - - 2/2 -]" || !strings.HasPrefix(out, want) || errs != "" || code != 0 {
		t.Errorf("code %d, %s\n%s", code, errs, out)
	}
	if took := time.Since(begun); took > rig.Soon {
		t.Errorf("it took %v", took)
	}
}

// TestTopCost measures what a live table of 1,000 Services costs. The limits are far off, as other tests run beside it.
func TestTopCost(t *testing.T) {
	c := newCluster(t)
	var all strings.Builder
	const services, looks = 1000, 10
	for i := range services {
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Service
metadata: {name: web-%d}
spec: {clusterIP: 10.96.%d.%d, ports: [{name: t, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]d-1, labels: {kubernetes.io/service-name: web-%[1]d}}
addressType: IPv4
ports: [{name: t, port: 8080}]
endpoints: [{addresses: [10.244.0.1]}, {addresses: [10.244.0.2]}, {addresses: [10.244.0.3]}]
`, i, 1+i/200, 1+i%200)
	}
	c.write("all.yaml", all.String())
	c.Run()
	before := c.Memory("RssAnon")
	p := pty.New(t, 80, 24)
	cmd := c.top(p)
	p.Await(rig.Patience, "the table", func(text string) bool { return strings.Contains(text, "1000 Services, 0 new") })
	spent := func() (agent, own time.Duration) {
		own, _, err := procfs.CPU(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return c.CPU(), own
	}
	cpu, own := spent()
	written := p.Written()
	time.Sleep(looks * time.Second)
	cpuAfter, ownAfter := spent()
	cpu, own, written = cpuAfter-cpu, ownAfter-own, p.Written()-written
	memory := c.Memory("RssAnon")
	p.Type("q")
	ends(t, cmd, 0)
	t.Logf("each second: agent %v, sluice top %v, %d bytes to the terminal; memory of the agent %.2f MB, before %.2f MB",
		cpu/looks, own/looks, written/looks, float64(memory)/1e6, float64(before)/1e6)
	if cpu > looks*100*time.Millisecond || own > looks*100*time.Millisecond || written > looks*100 {
		t.Error("that is too much")
	}
}
