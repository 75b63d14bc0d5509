package agent

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/agent/config"
	"sluice/agent/nodeaddr"
	"sluice/proxy"
)

// TestTakenServer keeps the address by which the node reaches its API server, a load balancer's perhaps, from externalIPs.
func TestTakenServer(t *testing.T) {
	n, err := newNodePlanner(&config.Config{ExternalIPs: proxy.ExternalIPsForeign, DetectLocalMode: "ClusterCIDR"})
	if err != nil {
		t.Fatal(err)
	}
	server := netip.MustParseAddr("192.0.2.1")
	n.setServer(server)
	if !n.changed {
		t.Error("a new address is no change")
	}
	planned, _, _ := n.plan(proxy.IPv4, &nodeaddr.Facts{}, nil, nil, nil)
	if !slices.Contains(planned.Taken, netip.PrefixFrom(server, 32)) {
		t.Errorf("taken are %v", planned.Taken)
	}
	n.changed = false
	if n.setServer(server); n.changed {
		t.Error("the same address is a change")
	}
}
