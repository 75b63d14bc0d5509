package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
)

// TestCommands asks the commands beside the agent while it runs, after its end, and after a clean-up.
func TestCommands(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	wantStatus := func(code int, words ...string) {
		t.Helper()
		out, errs, got := c.command("status")
		if got != code || !containsAll(out+errs, words) {
			t.Errorf("status: exit code %d, want %d with the words %q: %s%s", got, code, words, out, errs)
		}
	}
	wantStatus(3, "no sluice agent is running", c.socket())
	c.run()
	wantStatus(0, "healthy", "nftables", "1 service")
	pid := fmt.Sprintf("pid %d", c.cmd.Process.Pid)

	// A second agent on the same socket.
	second := &process{t: t, ns: c.ns, dir: c.dir, manifests: c.manifests, args: c.args}
	second.start()
	<-second.ended
	if code := second.cmd.ProcessState.ExitCode(); code != 1 || second.logged("another sluice agent", pid) == 0 {
		t.Errorf("a second agent: exit code %d, want 1 and a word about %s: %s", code, pid, second.log.String())
	}
	if out, errs, code := c.command("cleanup"); code != 1 || !strings.Contains(errs, pid) {
		t.Errorf("cleanup beside the agent: exit code %d, want 1 and a word about %s: %s%s", code, pid, out, errs)
	}
	c.reach(0, "pod1 tcp vip1:80", "pod2:8080")

	out, errs, code := c.command("get", "services")
	if code != 0 || !containsAll(out, []string{"web", c.names["vip1"].String()}) {
		t.Errorf("get services: exit code %d: %s%s", code, out, errs)
	}
	c.stop()
	wantStatus(3, "no sluice agent is running")
	c.reach(0, "pod1 tcp vip1:80", "pod2:8080")

	// Flows that are open at the clean-up are the kernel's.
	for range 2 { // the second time there is nothing to do
		if out, errs, code := c.command("cleanup"); code != 0 {
			t.Errorf("cleanup after the agent's end: exit code %d, want 0: %s%s", code, out, errs)
		}
		if left := c.onNode("nft", "list", "ruleset"); strings.TrimSpace(left) != "" {
			t.Errorf("after the clean-up the kernel has:\n%s", left)
		}
	}
	c.reach(0, "pod1 tcp vip1:80", "unreachable")
	c.run()
	c.reach(0, "pod1 tcp vip1:80", "pod2:8080")
	c.stop()
}

// TestTwoAgents runs two agents with sockets of their own in one network: the first has the rules.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.run()
	if !c.tryOnNode("nft", "list", "table", "ip", "sluice") {
		t.Fatal("there is no table")
	}
	if c.tryOnNode("nft", "add", "chain", "ip", "sluice", "intruder") {
		t.Skip("this kernel cannot reserve tables: agents are not told apart")
	}
	clients := c.connect(10*time.Millisecond, "pod1 tcp vip1:80")

	second := newProcess(t, c.ns, append(c.args, "--healthz-bind-address", "")...)
	second.write("web.yaml", c.expand(service("web", "vip1", ports)+"---\n"+endpoints("web", "pod3")))
	second.start()
	s := second.await(soon, "an error in both families", func(s status.Status) bool {
		return len(s.Families) == 2 && s.Families[0].LastError != "" && s.Families[1].LastError != ""
	})
	for i, f := range proxy.Families {
		if text := s.Families[i].LastError; !containsAll(text, []string{"belongs to another running program", "second sluice agent"}) {
			t.Errorf("the second agent's error in %v: %s", f, text)
		}
	}
	if s.Healthy || s.Families[0].RetryAt.IsZero() {
		t.Errorf("the second agent's status: %+v", s)
	}
	if out, errs, code := second.command("status"); code != 1 || !strings.Contains(out, "next try in") {
		t.Errorf("status of the second agent: exit code %d, want 1 and the next try: %s%s", code, out, errs)
	}
	time.Sleep(300 * time.Millisecond)
	second.alive()
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod1")) // the first can still write
	c.reach(soon, "pod2 tcp vip1:80", "pod1:8080")
	endUndisturbed(t, clients, "pod2:8080", "pod1:8080")
	if n := second.logged("belongs to another running program", "IPv4"); n != 1 {
		t.Errorf("the second agent logged its error %d times", n)
	}

	// Cleanup by a third hand does not take away what a running agent keeps.
	third := newProcess(t, c.ns)
	if out, errs, code := third.command("cleanup"); code != 1 || !strings.Contains(errs, "belongs to another running program") {
		t.Errorf("cleanup on another socket: exit code %d, want 1: %s%s", code, out, errs)
	}
	c.reach(0, "pod2 tcp vip1:80", "pod1:8080")

	c.stop()
	second.await(patience, "rules in the kernel", func(s status.Status) bool { return s.Healthy && settled(s) })
	c.reach(0, "pod1 tcp vip1:80", "pod3:8080")
	second.stop()
}
