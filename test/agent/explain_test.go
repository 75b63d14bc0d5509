package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"sluice/agent/status"
)

// TestExplain asks the running agent where connections go, and makes them.
func TestExplain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.write("empty.yaml", service("empty", "vip2", ports))
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
	for _, p := range paths("empty") {
		if p.Verdict != "rejected" || !strings.Contains(p.Reason, "no endpoint is ready") {
			t.Errorf("%+v", p)
		}
	}
	c.Reach(0, "pod1 tcp vip2:80", "refused")
	if out, errs, code := c.Command("explain", "nosuch"); code != 1 || !strings.Contains(errs, "no Service nosuch") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	c.Stop()
	if _, errs, code := c.Command("explain", "web"); code != 3 || !strings.Contains(errs, "no sluice agent is running") {
		t.Errorf("without an agent: code %d, %s", code, errs)
	}
}
