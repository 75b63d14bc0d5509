package nft

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/test/lab"
)

func counters(t testing.TB, f fixture, n *lab.Namespace) map[string]uint64 {
	t.Helper()
	got := map[string]uint64{}
	err := ReadCounters(Options{Family: f.Family, NetNS: n.FD()}, func(c Counter) {
		got[fmt.Sprintf("%v %s", c.Frontend, c.ServicePort)] = c.Packets
		if (c.Bytes == 0) != (c.Packets == 0) {
			t.Errorf("%v: %d packets with %d bytes", c.Frontend, c.Packets, c.Bytes)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestReadCounters(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		if got := counters(t, f, n); len(got) != 0 {
			t.Errorf("without a table: %v", got)
		}
		for _, a := range []int{1, 2} {
			n.Must(t, "ip", "address", "add", nth(f.pods, a).String(), "dev", "lo")
		}
		n.Must(t, "ip", "route", "add", "local", f.services.String(), "dev", "lo")

		vip := nth(f.services, 1)
		dns := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "kube-system", Name: "kube-dns"}, Port: "dns", Protocol: proxy.UDP}
		none := proxy.ServicePortName{ServiceName: dns.ServiceName, Port: "none", Protocol: proxy.UDP}
		plan := func(pods ...int) *proxy.ServicePlan {
			route := &proxy.Route{Port: dns, Pool: f.pool(0, pods...), Masquerade: proxy.MasqueradeOffCluster}
			return &proxy.ServicePlan{Name: dns.ServiceName, Frontends: []proxy.FrontendRoute{
				{Frontend: proxy.Frontend{Addr: vip, Port: 53, Protocol: proxy.UDP}, Route: route},
				{Frontend: proxy.Frontend{Addr: vip, Port: 54, Protocol: proxy.UDP}, Route: route},
				{Frontend: proxy.Frontend{Addr: vip, Port: 55, Protocol: proxy.UDP}, Route: &proxy.Route{Port: none, Pool: &proxy.Pool{}}},
			}}
		}
		send := func(times int) { // each from a port of its own
			n.Must(t, "bash", "-c", fmt.Sprintf("for i in {1..%d}; do echo hello >/dev/udp/%v/53; done", times, vip))
		}
		at := func(port int) string {
			return fmt.Sprintf("%v kube-system/kube-dns:dns", proxy.Frontend{Addr: vip, Port: uint16(port), Protocol: proxy.UDP})
		}

		w := newWriter(t, n, f, false)
		s := proxy.NewState(f.Family, f.settings())
		s.Set(dns.ServiceName, plan(1))
		reconcile(t, w, s)
		send(3)
		if diff := cmp.Diff(map[string]uint64{at(53): 3, at(54): 0}, counters(t, f, n)); diff != "" {
			t.Errorf("three connections (-want +got):\n%s", diff)
		}
		reconcile(t, w, s)
		send(1)
		if diff := cmp.Diff(map[string]uint64{at(53): 4, at(54): 0}, counters(t, f, n)); diff != "" {
			t.Errorf("one more (-want +got):\n%s", diff)
		}
		apply(t, w, s.Set(dns.ServiceName, plan(1, 2)))
		send(2)
		if diff := cmp.Diff(map[string]uint64{at(53): 6, at(54): 0}, counters(t, f, n)); diff != "" {
			t.Errorf("counted on with another number of endpoints (-want +got):\n%s", diff)
		}
		s.Set(dns.ServiceName, plan(2))
		reconcile(t, w, s)
		send(1)
		if diff := cmp.Diff(map[string]uint64{at(53): 7, at(54): 0}, counters(t, f, n)); diff != "" {
			t.Errorf("counted on with another number of endpoints that is not known to have changed (-want +got):\n%s", diff)
		}
		apply(t, w, s.Set(dns.ServiceName, plan()))
		apply(t, w, s.Set(dns.ServiceName, plan(1)))
		send(1)
		if diff := cmp.Diff(map[string]uint64{at(53): 1, at(54): 0}, counters(t, f, n)); diff != "" {
			t.Errorf("counted anew after a time without endpoints (-want +got):\n%s", diff)
		}
		affine := plan(1)
		for i := range affine.Frontends[:2] {
			affine.Frontends[i].Route.Affinity = 60
		}
		apply(t, w, s.Set(dns.ServiceName, affine))
		send(1)
		if diff := cmp.Diff(map[string]uint64{at(53): 2, at(54): 0}, counters(t, f, n)); diff != "" {
			t.Errorf("counted on with affinity (-want +got):\n%s", diff)
		}
	})
}

// TestReadCountersBeside reads while a writer writes.
func TestReadCountersBeside(t *testing.T) {
	const services = 500
	f := fixtures[0]
	n := lab.NewTestNamespace(t)
	w := newWriter(t, n, f, false)
	s := plainState(f, services)
	reconcile(t, w, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			if got := len(counters(t, f, n)); got < services/2 || got > services {
				t.Errorf("%d frontends were told of, there are %d", got, services)
			}
		}
	}()
	for generation := 0; ; generation++ {
		select {
		case <-done:
			if got := len(counters(t, f, n)); got != services {
				t.Errorf("%d frontends were told of in the end, there are %d", got, services)
			}
			return
		default:
			p := plain(f, generation%services, generation)
			apply(t, w, s.Set(p.Name, p))
		}
	}
}

func TestReadCountersWithoutNetNS(t *testing.T) {
	err := ReadCounters(Options{Family: proxy.IPv4, NetNS: 1 << 20}, func(Counter) { t.Error("called") })
	if err == nil {
		t.Error("no error for a namespace that is not there")
	}
}

// BenchmarkReadCounters is what a scrape costs, for each family.
func BenchmarkReadCounters(b *testing.B) {
	for _, services := range []int{500, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			f := fixtures[0]
			n := lab.NewTestNamespace(b)
			reconcile(b, newWriter(b, n, f, false), plainState(f, services))
			for b.Loop() {
				read := 0
				if err := ReadCounters(Options{Family: f.Family, NetNS: n.FD()}, func(Counter) { read++ }); err != nil {
					b.Fatal(err)
				}
				if read != services {
					b.Fatalf("read %d of %d counters", read, services)
				}
			}
		})
	}
}
