package agent

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/rig"
)

// TestCommands asks the commands beside the agent while it runs, after its end, and after a clean-up.
func TestCommands(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	wantStatus := func(code int, words ...string) {
		t.Helper()
		out, errs, got := c.Command("status")
		if got != code || !rig.ContainsAll(out+errs, words) {
			t.Errorf("status: exit code %d, want %d with the words %q: %s%s", got, code, words, out, errs)
		}
	}
	wantStatus(3, "no sluice agent is running", c.Socket())
	c.Run()
	wantStatus(0, "healthy", "nftables", "1 service")
	pid := fmt.Sprintf("pid %d", c.Cmd.Process.Pid)

	// A second agent on the same socket.
	second := &rig.Process{T: t, NS: c.NS, Dir: c.Dir, Manifests: c.Manifests, Args: c.Args}
	second.Start()
	<-second.Ended
	if code := second.Cmd.ProcessState.ExitCode(); code != 1 || second.Logged("another sluice agent", pid) == 0 {
		t.Errorf("a second agent: exit code %d, want 1 and a word about %s: %s", code, pid, second.Log.String())
	}
	if out, errs, code := c.Command("cleanup"); code != 1 || !strings.Contains(errs, pid) {
		t.Errorf("cleanup beside the agent: exit code %d, want 1 and a word about %s: %s%s", code, pid, out, errs)
	}
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")

	out, errs, code := c.Command("get", "services")
	if code != 0 || !rig.ContainsAll(out, []string{"web", c.Names["vip1"].String()}) {
		t.Errorf("get services: exit code %d: %s%s", code, out, errs)
	}
	c.Stop()
	wantStatus(3, "no sluice agent is running")
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")

	// Flows that are open at the clean-up are the kernel's.
	for range 2 { // the second time there is nothing to do
		if out, errs, code := c.Command("cleanup"); code != 0 {
			t.Errorf("cleanup after the agent's end: exit code %d, want 0: %s%s", code, out, errs)
		}
		if left := c.OnNode("nft", "list", "ruleset"); strings.TrimSpace(left) != "" {
			t.Errorf("after the clean-up the kernel has:\n%s", left)
		}
	}
	c.Reach(0, "pod1 tcp vip1:80", "unreachable")
	c.Run()
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	c.Stop()
}

// TestTwoAgents runs two agents with sockets of their own in one network: the first has the rules.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	if !c.TryOnNode("nft", "list", "table", "ip", "sluice") {
		t.Fatal("there is no table")
	}
	if c.TryOnNode("nft", "add", "chain", "ip", "sluice", "intruder") {
		t.Skip("this kernel cannot reserve tables: agents are not told apart")
	}
	clients := c.Connect(10*time.Millisecond, "pod1 tcp vip1:80")

	second := rig.NewProcess(t, c.NS, append(c.Args, "--healthz-bind-address", "")...)
	second.Write("web.yaml", c.Expand(service("web", "vip1", ports)+"---\n"+endpoints("web", "pod3")))
	second.Start()
	s := second.Await(rig.Soon, "an error in both families", func(s status.Status) bool {
		return len(s.Families) == 2 && s.Families[0].LastError != "" && s.Families[1].LastError != ""
	})
	first, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range proxy.Families {
		if text := s.Families[i].LastError; !rig.ContainsAll(text, []string{"belongs to another running program, sluice (pid " + strconv.Itoa(first.PID) + ")", "second sluice agent"}) {
			t.Errorf("the second agent's error in %v: %s", f, text)
		}
	}
	if s.Healthy || s.Families[0].RetryAt.IsZero() {
		t.Errorf("the second agent's status: %+v", s)
	}
	if out, errs, code := second.Command("status"); code != 1 || !strings.Contains(out, "next try in") {
		t.Errorf("status of the second agent: exit code %d, want 1 and the next try: %s%s", code, out, errs)
	}
	time.Sleep(300 * time.Millisecond)
	second.Alive()
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod1")) // the first can still write
	c.Reach(rig.Soon, "pod2 tcp vip1:80", "pod1:8080")
	rig.EndUndisturbed(t, clients, "pod2:8080", "pod1:8080")
	if n := second.Logged("belongs to another running program", "IPv4"); n != 1 {
		t.Errorf("the second agent logged its error %d times", n)
	}

	// Cleanup by a third hand does not take away what a running agent keeps.
	third := rig.NewProcess(t, c.NS)
	if out, errs, code := third.Command("cleanup"); code != 1 || strings.Count(errs, "\n") != 1 ||
		!rig.ContainsAll(errs, []string{"another sluice agent runs", "sluice (pid " + strconv.Itoa(first.PID) + ")"}) {
		t.Errorf("cleanup on another socket: exit code %d, want 1 and one line: %s%s", code, out, errs)
	}
	c.Reach(0, "pod2 tcp vip1:80", "pod1:8080")

	c.Stop()
	second.Await(rig.Patience, "rules in the kernel", func(s status.Status) bool { return s.Healthy && rig.Settled(s) })
	c.Reach(0, "pod1 tcp vip1:80", "pod3:8080")
	second.Stop()
}
