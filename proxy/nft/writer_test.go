package nft

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"sluice/proxy"
)

func addrPorts(s ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range s {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

func newWriter(t testing.TB, n netns, f proxy.Family) *Writer {
	t.Helper()
	w, err := New(Options{Family: f, NetNS: n.fd, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func testPlan() *proxy.ServicePlan {
	port := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "default", Name: "web"}, Port: "http", Protocol: proxy.TCP}
	pool := &proxy.Pool{Slots: addrPorts("10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80"), AffinityID: 0x12345678}
	local := &proxy.Pool{Slots: addrPorts("10.1.0.1:80"), AffinityID: 0x12345679}
	fr := func(addr string, port uint16) proxy.Frontend {
		return proxy.Frontend{Addr: netip.MustParseAddr(addr), Port: port, Protocol: proxy.TCP}
	}
	return &proxy.ServicePlan{
		Name: port.ServiceName,
		Frontends: []proxy.FrontendRoute{
			{Frontend: fr("10.96.0.1", 80), Route: &proxy.Route{Port: port, Pool: pool, Masquerade: proxy.MasqueradeOffCluster, Affinity: 10800}},
			{Frontend: fr("192.168.1.1", 30080), Route: &proxy.Route{Port: port, Kind: proxy.NodePort, Pool: pool, LocalPool: local, Masquerade: proxy.MasqueradeHost, Affinity: 10800, WhenEmpty: proxy.Drop}},
			{Frontend: fr("5.6.7.8", 80), Route: &proxy.Route{Port: port, Kind: proxy.LoadBalancerIP, Pool: pool, Masquerade: proxy.MasqueradeAlways,
				SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("192.168.7.0/24")}}},
			{Frontend: fr("10.96.0.1", 81), Route: &proxy.Route{Port: port, Pool: &proxy.Pool{}}},
		},
		ClusterIPs:     []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		LocalEndpoints: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
	}
}

func TestScratch(t *testing.T) {
	n := newNetNS(t)
	w := newWriter(t, n, proxy.IPv4)
	s := proxy.NewState(proxy.IPv4, proxy.Settings{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}})
	p := testPlan()
	s.Set(p.Name, p)
	ctx := context.Background()
	st, err := w.Reconcile(ctx, s)
	t.Log(st, err)
	t.Log(n.run("nft", "list", "ruleset"))
	st, err = w.Reconcile(ctx, s)
	t.Log(st, err)
	w.Close()
	w = newWriter(t, n, proxy.IPv4)
	t.Log(w.Slots(p.Frontends[1].Frontend))
	st, err = w.Reconcile(ctx, s)
	t.Log(st, err)
	d := s.Set(p.Name, nil)
	st, err = w.Apply(ctx, &d)
	t.Log(st, err)
	t.Log(n.run("nft", "list", "ruleset"))
	t.Log(n.try("nft", "flush", "ruleset"))
	t.Log(w.Cleanup(ctx))
	t.Log(n.run("nft", "list", "ruleset"))
}
