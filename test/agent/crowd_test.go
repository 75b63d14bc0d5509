package agent

import (
	"fmt"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/test/rig"
)

// TestCrowd has somebody make more Services than there is memory for: those that were there before go on and can change, also
// after a restart, and status names the others, which are served when there is room.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const services, ports = 200, 100
	c := newCluster(t)
	c.Wrapper = []string{"env", "GOMEMLIMIT=24MiB"}
	c.write("zweb.yaml", service("web", "vip1", "  ports: [{name: t, port: 80}]\n"), endpoints("web", "pod2"))
	c.Run()
	var junk strings.Builder
	vip, vip6 := c.Names["vip1"], c.Names["vip1v6"]
	for range 100 {
		vip, vip6 = vip.Next(), vip6.Next()
	}
	for i := range services {
		vip, vip6 = vip.Next(), vip6.Next()
		fmt.Fprintf(&junk, "---\napiVersion: v1\nkind: Service\nmetadata: {name: a%d, creationTimestamp: \"2026-02-01T00:00:00Z\"}\n"+
			"spec:\n  clusterIPs: [%v, %v]\n  clusterIP: %[2]v\n  ipFamilyPolicy: RequireDualStack\n  ports:\n", i, vip, vip6)
		for port := range ports {
			fmt.Fprintf(&junk, "  - {name: p%d, port: %[1]d}\n", 1+port)
		}
	}
	c.write("junk.yaml", junk.String())
	crowded := func(s status.Status) bool {
		return s.Healthy && rig.Settled(s) && strings.Contains(strings.Join(s.Conflicts, "\n"), "need more memory than this agent may use")
	}
	c.Await(rig.Patience, "Services that are not served", crowded)
	c.write("zweb.yaml", service("web", "vip1", "  ports: [{name: t, port: 80}]\n"), endpoints("web", "pod3"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod3:8080")
	if n := c.Logged("Services are not served", "need more memory"); n != 1 {
		t.Errorf("the log tells of it %d times", n)
	}
	c.Stop()
	c.Run()
	c.Await(rig.Patience, "the same after a restart", crowded)
	c.Reach(0, "pod1 tcp vip1:80", "pod3:8080")
	c.Remove("junk.yaml")
	c.Await(rig.Patience, "all served", func(s status.Status) bool { return rig.Settled(s) && len(s.Conflicts) == 0 })
	c.Reach(0, "pod1 tcp vip1:80", "pod3:8080")
}
