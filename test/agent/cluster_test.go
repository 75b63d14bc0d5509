package agent

import (
	"strings"
	"testing"

	"sluice/test/rig"
)

// cluster is a rig whose agent follows manifests.
type cluster struct{ *rig.Rig }

// newCluster builds a lab and prepares an agent on its node.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{rig.New(t, args...)}
	c.write("cidr.yaml", serviceCIDR)
	return c
}

// write puts a manifest with names in it into the directory in one step.
func (c *cluster) write(file string, texts ...string) {
	c.T.Helper()
	c.Process.Write(file, c.Expand(strings.Join(texts, "---\n")))
}
