package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// kernel stands for what ReadCounters tells, by "ADDRESS:PORT namespace/name:port".
type kernel struct {
	counters map[string]uint64
	err      error
	looks    int
}

func (k *kernel) read(f proxy.Family, fn func(nft.Counter)) error {
	k.looks++
	for key, n := range k.counters {
		at, name, _ := strings.Cut(key, " ")
		addr := netip.MustParseAddrPort(at)
		if proxy.FamilyOf(addr.Addr()) == f {
			fn(nft.Counter{Frontend: proxy.Frontend{Addr: addr.Addr(), Port: addr.Port(), Protocol: proxy.TCP}, ServicePort: []byte(name), Packets: n})
		}
	}
	return k.err
}

func TestConnections(t *testing.T) {
	clock := newClock()
	k := &kernel{counters: map[string]uint64{"10.0.0.1:80 ns/web:http": 1000}}
	var log bytes.Buffer
	r := New(Options{Families: proxy.Families[:], Services: 2, ReadCounters: k.read, Now: clock.Now, Log: slog.New(slog.NewTextHandler(&log, nil))})
	series := func(service, port string) string {
		return fmt.Sprintf(`sluice_service_new_connections_total{namespace="ns",service="%s",port="%s",protocol="TCP"}`, service, port)
	}
	web, api, others := series("web", "http"), series("api", ""), "sluice_service_frontends_left_out"
	names := []string{"sluice_service_new_connections_total", others}
	expect := func(step string, want map[string]float64) {
		t.Helper()
		check(t, step, r, names, want)
	}

	expect("what an earlier agent saw does not count", map[string]float64{web: 0, others: 0})
	clock.Step(time.Minute)
	k.counters["10.0.0.1:80 ns/web:http"] = 1003
	expect("three", map[string]float64{web: 3, others: 0})
	k.counters["10.0.0.1:80 ns/web:http"] = 1005
	clock.Step(readInterval - 1)
	looks := k.looks
	expect("not looked at again so soon", map[string]float64{web: 3, others: 0})
	if k.looks != looks {
		t.Errorf("looked %d times within %v", k.looks-looks, readInterval)
	}
	clock.Step(1)
	k.counters["[fd00::1]:80 ns/web:http"] = 10
	k.counters["192.168.1.5:30080 ns/web:http"] = 100
	expect("all addresses together", map[string]float64{web: 5 + 10 + 100, others: 0})
	clock.Step(time.Minute)
	k.counters["10.0.0.1:80 ns/web:http"] = 2
	expect("counted anew", map[string]float64{web: 115 + 2, others: 0})

	clock.Step(time.Minute)
	k.counters["10.0.0.2:80 ns/api"] = 1
	k.counters["10.0.0.3:80 ns/late"] = 1
	delete(k.counters, "10.0.0.1:80 ns/web:http") // without endpoints
	k.counters["192.168.1.5:30080 ns/web:http"] = 101
	got := values(scrape(t, r), names...)
	// The kernel gives no order: either of the two is too much.
	if late := series("late", ""); got[late] == 1 {
		t.Log("late came first")
		api = late
	}
	if diff := cmp.Diff(map[string]float64{web: 118, api: 1, others: 1}, got); diff != "" {
		t.Errorf("more Services than series (-want +got):\n%s", diff)
	}

	clear(k.counters)
	k.counters["10.0.0.1:80 ns/web:http"] = 1
	k.counters["10.0.0.9:80 other/new:http"] = 7
	clock.Step(keepSeries)
	expect("kept for a while", map[string]float64{web: 119, api: 1, others: 1})
	k.err = errors.New("no kernel")
	clock.Step(time.Minute)
	expect("nothing is dropped without a look", map[string]float64{web: 119, api: 1, others: 1})
	k.err = nil
	clock.Step(time.Minute)
	expect("dropped", map[string]float64{web: 119, others: 1})
	clock.Step(time.Minute)
	expect("its place is taken", map[string]float64{web: 119, others: 0,
		`sluice_service_new_connections_total{namespace="other",service="new",port="http",protocol="TCP"}`: 7})

	// An address can pass from one Service to another.
	delete(k.counters, "10.0.0.9:80 other/new:http")
	k.counters["10.0.0.9:80 ns/web:http"] = 4
	clock.Step(time.Minute)
	if got := values(scrape(t, r), names...)[web]; got != 123 {
		t.Errorf("with the other Service's address: %g, want 123", got)
	}
	if got := strings.Count(log.String(), "no kernel"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, &log)
	}
}

func TestConnectionsLimits(t *testing.T) {
	clock := newClock()
	k := &kernel{counters: map[string]uint64{}}
	for i := range 2 * maxPorts {
		k.counters[fmt.Sprintf("10.0.0.1:%d ns/web:p%d", i+1, i)] = 1
	}
	k.counters["10.0.0.2:1 junk"] = 1
	k.counters["10.0.0.2:2 "] = 1
	k.counters["10.0.0.2:3 a\"\\\n\xff/b:c:d"] = 1
	r := New(Options{Families: proxy.Families[:], Services: 10, ReadCounters: k.read, Now: clock.Now})
	got := scrape(t, r)
	if n := len(got["sluice_service_new_connections_total"].samples); n != maxPorts+1 {
		t.Errorf("%d series, want %d", n, maxPorts+1)
	}
	if _, ok := got["sluice_service_new_connections_total"].samples[`{namespace="a\"\\\n�",service="b",port="c:d",protocol="TCP"}`]; !ok {
		t.Error("the series with the odd name is missing")
	}
	check(t, "the rest", r, []string{"sluice_service_frontends_left_out"}, map[string]float64{"sluice_service_frontends_left_out": maxPorts + 2})

	off := New(Options{Families: proxy.Families[:], ReadCounters: func(proxy.Family, func(nft.Counter)) error {
		t.Error("the kernel is asked although no Services are wanted")
		return nil
	}})
	if _, ok := scrape(t, off)["sluice_service_new_connections_total"]; ok {
		t.Error("there are series although none are wanted")
	}
}

// TestConnectionsInKernel counts what really happens, over changes of the endpoints.
func TestConnectionsInKernel(t *testing.T) {
	ns := lab.NewTestNamespace(t, "address add 10.1.0.1/32 dev lo", "address add 10.1.0.2/32 dev lo", "route add local 10.96.0.0/16 dev lo")
	var w *nft.Writer
	if err := ns.Do(func() (err error) {
		w, err = nft.New(nft.Options{Family: proxy.IPv4})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	clock := newClock()
	r := New(Options{Families: []proxy.Family{proxy.IPv4}, Services: DefaultServices, Now: clock.Now,
		ReadCounters: func(f proxy.Family, fn func(nft.Counter)) error {
			return ns.Do(func() error { return nft.ReadCounters(nft.Options{Family: f}, fn) })
		}})

	name := proxy.ServiceName{Namespace: "ns", Name: "web"}
	route := &proxy.Route{Port: proxy.ServicePortName{ServiceName: name, Port: "udp", Protocol: proxy.UDP}}
	plan := func(pods ...string) *proxy.ServicePlan {
		own := *route
		own.Pool = &proxy.Pool{}
		for _, p := range pods {
			own.Pool.Slots = append(own.Pool.Slots, netip.MustParseAddrPort(p))
		}
		return &proxy.ServicePlan{Name: name, Frontends: []proxy.FrontendRoute{
			{Frontend: proxy.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: proxy.UDP}, Route: &own}}}
	}
	state := proxy.NewState(proxy.IPv4, proxy.Settings{})
	state.Set(name, plan("10.1.0.1:8080"))
	ctx := context.Background()
	if _, err := w.Reconcile(ctx, state); err != nil {
		t.Fatal(err)
	}
	send := func(n int) {
		ns.Must(t, "bash", "-c", fmt.Sprintf("for i in {1..%d}; do echo hello >/dev/udp/10.96.0.1/80; done", n))
		clock.Step(time.Minute)
	}
	expect := func(step string, n float64) {
		t.Helper()
		check(t, step, r, []string{"sluice_service_new_connections_total"}, map[string]float64{
			`sluice_service_new_connections_total{namespace="ns",service="web",port="udp",protocol="UDP"}`: n})
	}
	expect("none", 0)
	send(3)
	expect("three", 3)
	for i, pods := range [][]string{{"10.1.0.1:8080", "10.1.0.2:8080"}, {"10.1.0.2:8080"}} {
		d := state.Set(name, plan(pods...))
		if _, err := w.Apply(ctx, &d); err != nil {
			t.Fatal(err)
		}
		send(2)
		expect(fmt.Sprintf("after change %d of the endpoints", i+1), float64(3+2*(i+1)))
	}
}

// BenchmarkScrape has 500 Services with two addresses each, in both families; the kernel is not asked.
func BenchmarkScrape(b *testing.B) {
	for _, services := range []int{0, DefaultServices} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			clock := newClock()
			read := func(f proxy.Family, fn func(nft.Counter)) error {
				c := nft.Counter{Frontend: proxy.Frontend{Protocol: proxy.TCP}, Packets: uint64(clock.Now().Unix())}
				for i := range services {
					c.ServicePort = fmt.Appendf(c.ServicePort[:0], "namespace/service-%d:https", i)
					for port := range 2 {
						c.Frontend.Addr, c.Frontend.Port = netip.AddrFrom4([4]byte{10, byte(f), byte(i >> 8), byte(i)}), uint16(port)
						fn(c)
					}
				}
				return nil
			}
			r := newRecorder(b, clock)
			r2 := New(Options{Families: proxy.Families[:], Store: r.o.Store, Health: r.o.Health, Services: services, ReadCounters: read, Now: clock.Now})
			size := 0
			for b.Loop() {
				clock.Step(time.Minute)
				var page bytes.Buffer
				r2.Write(&page)
				size = page.Len()
			}
			b.ReportMetric(float64(size), "page-bytes")
		})
	}
}
