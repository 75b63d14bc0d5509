package nft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// fixture makes addresses of one family.
type fixture struct {
	proxy.Family
	pods, services, vips netip.Prefix
}

var fixtures = []fixture{
	{proxy.IPv4, netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("192.0.2.0/24")},
	{proxy.IPv6, netip.MustParsePrefix("fd00:1::/64"), netip.MustParsePrefix("fd00:96::/112"), netip.MustParsePrefix("2001:db8::/64")},
}

// nth returns the n-th address of a prefix.
func nth(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] += byte(n)
	b[len(b)-2] += byte(n >> 8)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (f fixture) pool(id uint32, pods ...int) *proxy.Pool {
	p := &proxy.Pool{AffinityID: id}
	for _, n := range pods {
		p.Slots = append(p.Slots, netip.AddrPortFrom(nth(f.pods, n), 8080))
	}
	return p
}

func (f fixture) settings() proxy.Settings {
	return proxy.Settings{ServiceCIDRs: []netip.Prefix{f.services},
		Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{f.pods}}}
}

// service plans a Service with one frontend of every kind and feature.
func (f fixture) service(name string, n int, pool, local *proxy.Pool) *proxy.ServicePlan {
	port := proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: proxy.TCP}
	at := func(a netip.Addr, port uint16) proxy.Frontend {
		return proxy.Frontend{Addr: a, Port: port, Protocol: proxy.TCP}
	}
	return &proxy.ServicePlan{
		Name: port.ServiceName,
		Frontends: []proxy.FrontendRoute{
			{Frontend: at(nth(f.services, n), 80), Route: &proxy.Route{Port: port, Pool: pool, Masquerade: proxy.MasqueradeOffCluster, Affinity: 10800}},
			{Frontend: at(nth(f.services, n), 81), Route: &proxy.Route{Port: port, Pool: &proxy.Pool{}}},
			{Frontend: at(nth(f.vips, n), 80), Route: &proxy.Route{Port: port, Kind: proxy.NodePort, Pool: pool, LocalPool: local, Masquerade: proxy.MasqueradeHost, Affinity: 10800, WhenEmpty: proxy.Drop}},
			{Frontend: at(nth(f.vips, n), 443), Route: &proxy.Route{Port: port, Kind: proxy.LoadBalancerIP, Pool: pool, Masquerade: proxy.MasqueradeAlways,
				SourceRanges: []netip.Prefix{f.pods, f.services}}},
		},
		ClusterIPs:     []netip.Addr{nth(f.services, n)},
		LocalEndpoints: []netip.Addr{nth(f.pods, n)},
	}
}

func eachFamily(t *testing.T, fn func(t *testing.T, f fixture, n *lab.Namespace)) {
	for _, f := range fixtures {
		t.Run(f.String(), func(t *testing.T) { fn(t, f, lab.NewTestNamespace(t)) })
	}
}

func newWriter(t testing.TB, n *lab.Namespace, f fixture, shared bool) *Writer {
	t.Helper()
	w, err := New(Options{Family: f.Family, NetNS: n.FD(), Shared: shared, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func reconcile(t testing.TB, w *Writer, s *proxy.State) proxy.Stats {
	t.Helper()
	stats, err := w.Reconcile(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func apply(t testing.TB, w *Writer, d proxy.Delta) proxy.Stats {
	t.Helper()
	stats, err := w.Apply(context.Background(), &d)
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

var volatile = regexp.MustCompile(`(?m)expires \S+|counter packets \d+ bytes \d+ | # progname .*|^\tflags .*$`)

// listing is the ruleset as nft prints it, in an order that does not depend on history.
func listing(t testing.TB, n *lab.Namespace) []string {
	t.Helper()
	lines := strings.Split(volatile.ReplaceAllString(n.Must(t, "nft", "-n", "list", "ruleset"), ""), "\n")
	return sortBlocks(lines)
}

// sortBlocks sorts the chains among each other and the elements of a set, for the kernel gives them in order of age or hash.
func sortBlocks(lines []string) []string {
	var blocks, out []string
	block := ""
	for _, l := range lines {
		l = strings.TrimRight(strings.TrimSpace(l), ",}")
		l = strings.TrimSpace(strings.TrimPrefix(l, "elements = {"))
		if strings.HasPrefix(l, "chain ") || strings.HasPrefix(l, "map ") || strings.HasPrefix(l, "set ") {
			block = strings.TrimSuffix(l, " {")
		}
		switch {
		case l == "":
		case strings.Contains(block, "chain"):
			out = append(out, block+": "+l) // rules keep their order
		default:
			blocks = append(blocks, block+": "+l)
		}
	}
	// Stable by block, so that rules keep their order within a chain.
	slices.SortStableFunc(out, func(a, b string) int {
		return strings.Compare(a[:strings.Index(a, ":")], b[:strings.Index(b, ":")])
	})
	slices.Sort(blocks)
	return append(blocks, out...)
}

func TestReconcileIsIdempotentAndAdopts(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		s := proxy.NewState(f.Family, f.settings())
		p := f.service("web", 1, f.pool(100, 1, 2, 3), f.pool(101, 1))
		s.Set(p.Name, p)
		w := newWriter(t, n, f, false)
		first := reconcile(t, w, s)
		if first.Added == 0 || first.Removed != 0 {
			t.Errorf("first reconcile: %+v, want only additions", first)
		}
		want := listing(t, n)
		none := proxy.Stats{Unchanged: first.Added}
		if got := reconcile(t, w, s); !cmp.Equal(got, none) {
			t.Errorf("second reconcile: %+v, want %+v", got, none)
		}
		w.Close()

		w = newWriter(t, n, f, false)
		if pool, local := w.Slots(p.Frontends[2].Frontend); len(pool) != 3 || len(local) != 1 {
			t.Errorf("slots read back: %v, %v; want 3 and 1", pool, local)
		}
		if got := reconcile(t, w, s); !cmp.Equal(got, none) {
			t.Errorf("reconcile of a new writer: %+v, want %+v", got, none)
		}
		if diff := cmp.Diff(want, listing(t, n)); diff != "" {
			t.Errorf("ruleset changed (-first +adopted):\n%s", diff)
		}
		if err := w.Cleanup(context.Background()); err != nil {
			t.Fatal(err)
		}
		if left := n.Must(t, "nft", "list", "ruleset"); left != "" {
			t.Errorf("left after cleanup:\n%s", left)
		}
	})
}

func TestApplyEndsWhereReconcileDoes(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		w := newWriter(t, n, f, false)
		s := proxy.NewState(f.Family, f.settings())
		reconcile(t, w, s)
		empty := listing(t, n)
		steps := []struct {
			name string
			plan *proxy.ServicePlan
		}{
			{"web", f.service("web", 1, f.pool(100, 1, 2, 3), f.pool(101, 1))},
			{"api", f.service("api", 2, f.pool(200, 4, 5, 6), f.pool(201))},
			{"web", f.service("web", 1, f.pool(100, 1, 7, 3), f.pool(101, 1))},
			{"web", f.service("web", 1, f.pool(100, 1), f.pool(101))},
			{"web", f.service("web", 1, f.pool(100), f.pool(101))},
			{"api", f.service("api", 3, f.pool(200, 4, 5), f.pool(201, 4, 5))},
			{"web", f.service("web", 1, f.pool(100, 1, 2, 3, 4, 5), f.pool(101, 2))},
			{"api", nil},
			{"web", nil},
		}
		for i, step := range steps {
			apply(t, w, s.Set(proxy.ServiceName{Namespace: "default", Name: step.name}, step.plan))
			got := listing(t, n)
			if stats := reconcile(t, w, s); stats.Added != 0 || stats.Removed != 0 {
				t.Errorf("step %d: reconcile found a difference: %+v", i, stats)
			}
			if diff := cmp.Diff(listing(t, n), got); diff != "" {
				t.Errorf("step %d (-reconciled +applied):\n%s", i, diff)
			}
		}
		if diff := cmp.Diff(empty, listing(t, n)); diff != "" {
			t.Errorf("left after all Services went (-want +got):\n%s", diff)
		}
	})
}

func TestOneEndpointIsAHandfulOfElements(t *testing.T) {
	f := fixtures[0]
	n := lab.NewTestNamespace(t)
	w := newWriter(t, n, f, false)
	s := proxy.NewState(f.Family, f.settings())
	for i := range 50 {
		p := f.service(fmt.Sprint("web-", i), i, f.pool(uint32(100+2*i), 1, 2, 3), f.pool(uint32(101+2*i), 1))
		s.Set(p.Name, p)
	}
	reconcile(t, w, s)
	rules := strings.Count(n.Must(t, "nft", "list", "ruleset"), "chain ")
	p := f.service("web-7", 7, f.pool(114, 1, 9, 3), f.pool(115, 1))
	if stats := apply(t, w, s.Set(p.Name, p)); stats.Added != 3 || stats.Removed != 3 {
		t.Errorf("replacing an endpoint of three frontends: %+v, want 3 added and 3 removed", stats)
	}
	if got := strings.Count(n.Must(t, "nft", "list", "ruleset"), "chain "); got != rules {
		t.Errorf("%d chains, want the %d there were", got, rules)
	}
}

func TestOthersCannotChangeAnOwnedTable(t *testing.T) {
	f := fixtures[0]
	n := lab.NewTestNamespace(t)
	w := newWriter(t, n, f, false)
	if flags, err := w.ownership(); err != nil || flags == 0 {
		t.Skipf("this kernel cannot reserve tables (6.9 and later can): flags %d, error %v", flags, err)
	}
	s := proxy.NewState(f.Family, f.settings())
	p := f.service("web", 1, f.pool(100, 1, 2, 3), f.pool(101, 1))
	s.Set(p.Name, p)
	reconcile(t, w, s)
	want := listing(t, n)
	n.Must(t, "nft", "flush", "ruleset")
	if out, err := n.Run(t.Context(), "", "nft", "delete", "table", "ip", TableName); err == nil {
		t.Errorf("nft could delete the table: %s", out)
	}
	if diff := cmp.Diff(want, listing(t, n)); diff != "" {
		t.Errorf("changed by others (-want +got):\n%s", diff)
	}
	second := newWriter(t, n, f, false)
	_, err := second.Reconcile(context.Background(), s)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "another running program") {
		t.Errorf("a second writer got %v, want an error that names the other program", err)
	}
	if err := second.Cleanup(context.Background()); err == nil {
		t.Error("a second writer could clean up under the first")
	}
}

func TestReconcileMendsWhatOthersDid(t *testing.T) {
	harms := []string{
		"delete element %s sluice cluster-ips { %s }",
		"flush map %s sluice endpoints",
		"flush chain %s sluice nat-prerouting",
		"flush chain %s sluice lb-3",
		"add rule %s sluice answers drop",
		"delete table %s sluice",
		"flush chain %[1]s sluice nat-output ; delete chain %[1]s sluice nat-output",
		"flush chain %[1]s sluice nat-output ; delete chain %[1]s sluice nat-output ; add chain %[1]s sluice nat-output { type nat hook output priority 5 ; }",
		"add chain %s sluice stray",
		"flush ruleset",
	}
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		s := proxy.NewState(f.Family, f.settings())
		p := f.service("web", 1, f.pool(100, 1, 2, 3), f.pool(101, 1))
		s.Set(p.Name, p)
		w := newWriter(t, n, f, true)
		reconcile(t, w, s)
		want := listing(t, n)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		changed := make(chan struct{}, 10)
		if err := w.Watch(ctx, func(proxy.Program) { changed <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		for _, harm := range harms {
			family := familyName(nfproto(f.Family))
			script := fmt.Sprintf(harm, family, nth(f.services, 1))
			script, _, _ = strings.Cut(script, "%!(EXTRA")
			n.Must(t, "nft", script)
			if cmp.Equal(want, listing(t, n)) {
				t.Errorf("%s: did no harm", script)
			}
			select {
			case <-changed:
			case <-time.After(2 * time.Second):
				t.Errorf("%s: not noticed", script)
			}
			reconcile(t, w, s)
			if diff := cmp.Diff(want, listing(t, n)); diff != "" {
				t.Errorf("%s: not mended (-want +got):\n%s", script, diff)
			}
		}
		// A large change of the writer's own, too, that would overflow the socket's buffer.
		for i := range 5000 {
			p := plain(f, i, i)
			s.Set(p.Name, p)
		}
		reconcile(t, w, s)
		time.Sleep(2 * loud)
		if len(changed) != 0 {
			t.Error("the writer's own changes were told of as foreign")
		}
	})
}

func TestATableOfAnotherLayoutIsReplaced(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		family := familyName(nfproto(f.Family))
		n.Must(t, "nft", fmt.Sprintf("add table %[1]s sluice ; add set %[1]s sluice endpoints { type inet_service ; } ; add chain %[1]s sluice old", family))
		s := proxy.NewState(f.Family, f.settings())
		p := f.service("web", 1, f.pool(100, 1, 2, 3), f.pool(101, 1))
		s.Set(p.Name, p)
		reconcile(t, newWriter(t, n, f, false), s)
		if got := n.Must(t, "nft", "list", "ruleset"); strings.Contains(got, "chain old") || !strings.Contains(got, "nat-prerouting") {
			t.Errorf("not replaced:\n%s", got)
		}
	})
}

func TestErrorsNameTheRequest(t *testing.T) {
	f := fixtures[0]
	w := newWriter(t, lab.NewTestNamespace(t), f, false)
	s := proxy.NewState(f.Family, f.settings())
	p := f.service("web", 1, f.pool(100, 1), f.pool(101, 1))
	d := s.Set(p.Name, p)
	_, err := w.Apply(context.Background(), &d)
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(fmt.Sprint(err), "create chain") {
		t.Errorf("apply without a table: %v, want ENOENT and what was asked", err)
	}
}

// TestManySourceRanges removes more ranges than are removed one by one, by Apply and by Reconcile.
func TestManySourceRanges(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		name := proxy.ServiceName{Namespace: "default", Name: "web"}
		limited := func(ranges int) *proxy.ServicePlan {
			p := f.service("web", 1, f.pool(100, 1, 2), f.pool(101, 1))
			r := *p.Frontends[3].Route
			r.SourceRanges = nil
			for i := range ranges {
				r.SourceRanges = append(r.SourceRanges, netip.PrefixFrom(nth(f.vips, 2*i), f.vips.Addr().BitLen()))
			}
			p.Frontends[3].Route = &r
			return p
		}
		other := f.service("other", 2, f.pool(200, 1, 2), f.pool(201, 1))
		s := proxy.NewState(f.Family, f.settings())
		s.Set(other.Name, other)
		s.Set(name, limited(10))
		w := newWriter(t, n, f, false)
		reconcile(t, w, s)
		want := listing(t, n)
		for range 2 {
			apply(t, w, s.Set(name, limited(2000)))
			apply(t, w, s.Set(name, limited(10)))
			if diff := cmp.Diff(want, listing(t, n)); diff != "" {
				t.Errorf("after apply (-want +got):\n%s", diff)
			}
		}
		apply(t, w, s.Set(name, limited(2000)))
		s.Set(name, limited(10))
		reconcile(t, w, s)
		if diff := cmp.Diff(want, listing(t, n)); diff != "" {
			t.Errorf("after reconcile (-want +got):\n%s", diff)
		}
	})
}
