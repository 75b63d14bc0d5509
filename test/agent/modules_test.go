package agent

import (
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/rig"
)

// lacks is for machines that were prepared for it: test/qemu runs this there.
var lacks = flag.String("lacks", "", "kernel modules that this machine lacks, comma-separated")

// TestModulesThatLack has an agent on a machine that lacks kernel modules find the mode that works there, say
// what is missing, and serve; and sluice check name the modules.
func TestModulesThatLack(t *testing.T) {
	if *lacks == "" {
		t.Skip("this machine is not known to lack a kernel module: make test-qemu makes such machines")
	}
	modules := strings.Split(*lacks, ",")
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2", "far1"))
	if slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(m, "xt_") }) {
		// Nothing works. The agent stays, says why, and tries again.
		c.Start()
		c.AwaitLog(rig.Patience, append([]string{"level=ERROR", "rules cannot be written as it is", "modprobe"}, modules...)...)
		c.AwaitLog(rig.Patience, "level=ERROR", "rules not written")
		c.Alive()
	} else {
		c.Run()
		c.Await(rig.Soon, "iptables", func(s status.Status) bool { return s.Mode == "iptables" })
		c.AwaitLog(rig.Soon, append([]string{"proxy mode", "mode=iptables", "modprobe -a", "CONFIG_NF"}, modules...)...)
		for _, f := range proxy.Families {
			c.ReachIn(f, rig.Soon, "pod1 tcp vip1:80", "pod2:8080", "far1:8080")
		}
	}
	// It fails by the number of what is wrong.
	out, err := c.Lab.Node.Run(t.Context(), "", rig.Binary, "check", "-o", "json", "--manifests", c.Manifests)
	type item struct{ Name, Level, Detail, Remedy string }
	var found struct{ Items []item }
	if e := json.Unmarshal([]byte(out), &found); e != nil {
		t.Fatalf("sluice check: %v, %v\n%s", e, err, out)
	}
	for _, m := range modules {
		if !slices.ContainsFunc(found.Items, func(i item) bool { return i.Level != "ok" && strings.Contains(i.Remedy, m) }) {
			t.Errorf("sluice check does not name %s", m)
		}
	}
	t.Logf("log of the agent:\n%s\nsluice check:\n%s", c.Log.String(), out)
}
