package iptables

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

var benchVariants = []string{NFT, Legacy}

// BenchmarkFirst writes all of a state into an empty kernel.
func BenchmarkFirst(b *testing.B) {
	for _, variant := range benchVariants {
		for _, n := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/%dx10", variant, n), func(b *testing.B) {
				s := manyServices(proxy.IPv4, n, 10, proxy.Settings{})
				for b.Loop() {
					b.StopTimer()
					ns := lab.NewTestNamespace(b)
					b.StartTimer()
					w := open(b, Options{Family: proxy.IPv4, Variant: variant, NetNS: ns.FD()})
					if _, err := w.Reconcile(b.Context(), s); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOneEndpoint changes one endpoint of one Service, at the kernel that has many.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, variant := range benchVariants {
		for _, n := range []int{100, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/%dx10", variant, n), func(b *testing.B) {
				s := manyServices(proxy.IPv4, n, 10, proxy.Settings{})
				ns := lab.NewTestNamespace(b)
				w := open(b, Options{Family: proxy.IPv4, Variant: variant, NetNS: ns.FD()})
				if _, err := w.Reconcile(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				i := 0
				for b.Loop() {
					plan := manyPlan(proxy.IPv4, 1, 10)
					i++
					plan.Frontends[0].Route.Pool.Slots[3] = netip.AddrPortFrom(addrOf(proxy.IPv4, 200, i), 8080)
					d := s.Set(plan.Name, plan)
					if _, err := w.Apply(b.Context(), &d); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRead compares all rules with what they are to be, as Watch does.
func BenchmarkRead(b *testing.B) {
	for _, variant := range benchVariants {
		for _, n := range []int{100, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/%dx10", variant, n), func(b *testing.B) {
				ns := lab.NewTestNamespace(b)
				w := open(b, Options{Family: proxy.IPv4, Variant: variant, NetNS: ns.FD()})
				if _, err := w.Reconcile(b.Context(), manyServices(proxy.IPv4, n, 10, proxy.Settings{})); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if found, err := w.readFingerprint(b.Context()); err != nil || found != w.print {
						b.Fatalf("read %x, want %x, %v", found, w.print, err)
					}
				}
			})
		}
	}
}

// BenchmarkConnection makes one new connection through a ClusterIP, and reports how many rules its first packet passes.
func BenchmarkConnection(b *testing.B) {
	for _, variant := range benchVariants {
		for _, n := range []int{10, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/%d", variant, n), func(b *testing.B) {
				s := manyServices(proxy.IPv4, n, 1, proxy.Settings{})
				endpoint := addrOf(proxy.IPv4, 244, 0)
				ns := lab.NewTestNamespace(b, "address add "+endpoint.String()+"/32 dev lo", "route add 10.96.0.0/16 dev lo")
				l, err := ns.Listen(b.Context(), "tcp", netip.AddrPortFrom(endpoint, 8080).String())
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						c.Close()
					}
				}()
				w := open(b, Options{Family: proxy.IPv4, Variant: variant, NetNS: ns.FD()})
				if _, err := w.Reconcile(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				m, passed, frontends := full(b, s), 0, 0
				for f := range s.Routes() {
					_, n := m.walk("nat", servicesChain, netip.AddrPortFrom(endpoint, 1), netip.AddrPortFrom(f.Addr, f.Port), f.Protocol)
					passed, frontends = passed+n, frontends+1
				}
				vip := netip.AddrPortFrom(manyPlan(proxy.IPv4, 0, 1).Frontends[0].Addr, 80)
				err = ns.Do(func() error {
					for b.Loop() {
						c, err := net.DialTimeout("tcp", vip.String(), time.Second)
						if err != nil {
							return err
						}
						c.(*net.TCPConn).SetLinger(0) // no TIME-WAIT, which would use up the ports
						c.Close()
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(passed)/float64(frontends), "rules")
			})
		}
	}
}
