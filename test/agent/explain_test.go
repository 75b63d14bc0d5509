package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/lab"
)

// TestExplain asks the running agent where connections go, and makes them.
func TestExplain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.write("empty.yaml", service("empty", "vip2", ports))
	c.write("kept.yaml", service("kept", "vip3", sticky), endpoints("kept", "pod2", "far1"))
	c.Run()
	paths := func(args ...string) []status.Path {
		t.Helper()
		out, errs, code := c.Command(append(append([]string{"explain"}, args...), "-o", "json")...)
		var l status.List[status.Path]
		if err := json.Unmarshal([]byte(out), &l); err != nil || code != 0 || errs != "" {
			t.Fatalf("explain %v: code %d, %v, %s%s", args, code, err, out, errs)
		}
		return l.Items
	}
	all := paths("default/web", "--proto", "tcp")
	if len(all) != 4 { // ClusterIP and NodePorts, in both families
		t.Fatalf("%d paths: %+v", len(all), all)
	}
	for _, p := range all {
		if p.Verdict != "forwarded" || len(p.Endpoints) != 2 || p.Service != "default/web:t" {
			t.Errorf("%+v", p)
		}
		for _, e := range p.Endpoints {
			if e.Masqueraded != (p.Kind == "NodePort") {
				t.Errorf("%+v: masqueraded %v", p, e.Masqueraded)
			}
		}
	}
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080", "far1:8080")
	c.Reach(0, "outside tcp node:30080", "pod2:8080", "far1:8080")
	// A client with an affinity is remembered, without --live too.
	client := []string{"kept:t", "--from", c.Expand("$pod1")}
	if p := paths(client...)[0]; p.Remembered.IsValid() {
		t.Errorf("before it came: %+v", p)
	}
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip3:80", "pod2:8080|far1:8080")
	for _, p := range [][]status.Path{paths(client...), paths(append(client, "--live")...)} {
		if addr := p[0].Remembered.Addr().String(); addr != c.Expand("$pod2") && addr != c.Expand("$far1") {
			t.Errorf("after it came: %+v", p[0])
		}
	}
	// The kernel does just that, by rules that are named.
	for _, p := range append(paths("default/web", "--live"), paths("empty", "--live")...) {
		if p.Kernel == nil || len(p.Kernel.Differs) > 0 || len(p.Rules) < 3 {
			t.Errorf("%+v: kernel %+v, rules %+v", p.To, p.Kernel, p.Rules)
		}
	}
	for _, p := range paths("empty") {
		if p.Verdict != "rejected" || !strings.Contains(p.Reason, "no endpoint is ready") {
			t.Errorf("%+v", p)
		}
	}
	c.Reach(0, "pod1 tcp vip2:80", "refused")
	// A firewall's chain that drops what goes on to the endpoints is named, and one that accepts it is not.
	web := []string{"web:t", "--from", c.Expand("$pod1")}
	c.OnNode("nft", "add table inet fw; add chain inet fw gate { type filter hook forward priority 5; policy drop; }")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "silence")
	if p := paths(web...)[0]; len(p.Blocked) != 1 || !p.Blocked[0].Sure || p.Blocked[0].Chain != "nftables inet fw gate" || p.Blocked[0].Rule != "policy drop" {
		t.Errorf("%+v", p.Blocked)
	}
	c.OnNode("nft", "add rule inet fw gate ip daddr "+c.Expand("$pod2")+" oifname \""+lab.CNIBridge+"\" accept")
	if p := paths(web...)[0]; len(p.Blocked) != 1 || len(p.Blocked[0].To) != 1 || p.Blocked[0].To[0].Addr().String() != c.Expand("$far1") {
		t.Errorf("%+v", p.Blocked)
	}
	c.OnNode("nft", "add rule inet fw gate ct status dnat accept")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod2:8080|far1:8080")
	for _, p := range paths("web:t") {
		if len(p.Blocked) > 0 || p.BlockError != "" {
			t.Errorf("%+v, %s", p.Blocked, p.BlockError)
		}
	}
	c.OnNode("nft", "delete table inet fw")
	c.OnNode("iptables", "-P", "FORWARD", "DROP")
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "silence")
	if p := paths(web...)[0]; len(p.Blocked) != 1 || !p.Blocked[0].Sure || !strings.HasSuffix(p.Blocked[0].Chain, " filter FORWARD") {
		t.Errorf("%+v, %s", p.Blocked, p.BlockError)
	}
	c.OnNode("iptables", "-P", "FORWARD", "ACCEPT")
	if out, errs, code := c.Command("explain", "nosuch"); code != 1 || !strings.Contains(errs, "no Service nosuch") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	c.Stop()
	if _, errs, code := c.Command("explain", "web"); code != 3 || !strings.Contains(errs, "no sluice agent is running") {
		t.Errorf("without an agent: code %d, %s", code, errs)
	}
}
