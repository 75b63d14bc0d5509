package nft

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"sluice/proxy"
	"sluice/test/lab"
)

// plain plans a Service with one ClusterIP port and ten endpoints, the last of which is generation.
func plain(f fixture, n, generation int) *proxy.ServicePlan {
	port := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", n)}, Protocol: proxy.TCP}
	pool := &proxy.Pool{}
	for i := range 9 {
		pool.Slots = append(pool.Slots, netip.AddrPortFrom(nth(f.pods, (n*10+i)%65000), 8080))
	}
	pool.Slots = append(pool.Slots, netip.AddrPortFrom(nth(f.pods, generation%65000), 9090))
	vip := nth(f.services, n)
	return &proxy.ServicePlan{
		Name: port.ServiceName, ClusterIPs: []netip.Addr{vip},
		Frontends: []proxy.FrontendRoute{{Frontend: proxy.Frontend{Addr: vip, Port: 80, Protocol: proxy.TCP},
			Route: &proxy.Route{Port: port, Pool: pool, Masquerade: proxy.MasqueradeOffCluster}}},
	}
}

func plainState(f fixture, services int) *proxy.State {
	s := proxy.NewState(f.Family, f.settings())
	for i := range services {
		p := plain(f, i, i)
		s.Set(p.Name, p)
	}
	return s
}

// BenchmarkFirstReconcile writes everything into an empty namespace.
func BenchmarkFirstReconcile(b *testing.B) {
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			f := fixtures[0]
			s := plainState(f, services)
			n := lab.NewTestNamespace(b)
			for b.Loop() {
				b.StopTimer()
				w, err := New(Options{Family: f.Family, NetNS: n.FD()})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				reconcile(b, w, s)
				b.StopTimer()
				if err := w.Cleanup(context.Background()); err != nil {
					b.Fatal(err)
				}
				w.Close()
				b.StartTimer()
			}
		})
	}
}

// benchmarkWritten runs fn for several numbers of Services, all of which are in the kernel.
func benchmarkWritten(b *testing.B, fn func(b *testing.B, services int, w *Writer, s *proxy.State)) {
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			s := plainState(fixtures[0], services)
			w := newWriter(b, lab.NewTestNamespace(b), fixtures[0], false)
			reconcile(b, w, s)
			fn(b, services, w, s)
		})
	}
}

// BenchmarkAdopt is a restart: everything is in the kernel already.
func BenchmarkAdopt(b *testing.B) {
	benchmarkWritten(b, func(b *testing.B, _ int, w *Writer, s *proxy.State) {
		for b.Loop() {
			reconcile(b, w, s)
		}
	})
}

// BenchmarkOneEndpoint replaces one endpoint of one Service.
func BenchmarkOneEndpoint(b *testing.B) {
	benchmarkWritten(b, func(b *testing.B, services int, w *Writer, s *proxy.State) {
		generation := 0
		for b.Loop() {
			generation++
			p := plain(fixtures[0], services/2, generation)
			apply(b, w, s.Set(p.Name, p))
		}
	})
}
