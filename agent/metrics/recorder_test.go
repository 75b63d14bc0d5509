package metrics

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/agent/health"
	"sluice/agent/source"
	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/store"
)

func newClock() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
}

func noCounters(proxy.Family, func(nft.Counter)) error { return nil }

func newRecorder(t testing.TB, clock *clocktesting.FakeClock) *Recorder {
	t.Helper()
	s, _ := store.Open(store.Options{Identity: store.Identity{NodeName: "n"}})
	t.Cleanup(func() { s.Close() })
	return New(Options{
		Families: proxy.Families[:], Store: s, InStep: s.InStepTimes, Health: health.NewTracker(time.Minute, nil),
		Services: DefaultServices, ReadCounters: noCounters, Now: clock.Now,
	})
}

// values picks samples: "name{labels}" for each, without the histograms' buckets.
func values(all map[string]parsed, names ...string) map[string]float64 {
	got := map[string]float64{}
	for _, name := range names {
		for labels, v := range all[name].samples {
			if !strings.Contains(labels, "le=") {
				got[name+labels] = v
			}
		}
	}
	return got
}

func check(t *testing.T, step string, r *Recorder, names []string, want map[string]float64) {
	t.Helper()
	got := values(scrape(t, r), names...)
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("%s (-want +got):\n%s", step, diff)
	}
}

func slice(name string, typ discoveryv1.AddressType, triggered time.Time) source.Change {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, AddressType: typ}
	if !triggered.IsZero() {
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: triggered.Format(time.RFC3339Nano)}
	}
	return source.Change{Kind: source.EndpointSlice, Namespace: "ns", Name: name, Object: s}
}

func TestSyncs(t *testing.T) {
	clock := newClock()
	r := newRecorder(t, clock)
	names := []string{
		"kubeproxy_sync_proxy_rules_duration_seconds", "kubeproxy_sync_full_proxy_rules_duration_seconds",
		"kubeproxy_sync_partial_proxy_rules_duration_seconds", "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
	}
	want := map[string]float64{}
	for _, f := range proxy.Families {
		for _, h := range names[:3] {
			want[fmt.Sprintf(`%s_count{ip_family="%v"}`, h, f)] = 0
			want[fmt.Sprintf(`%s_sum{ip_family="%v"}`, h, f)] = 0
		}
		for _, g := range names[3:] {
			want[fmt.Sprintf(`%s{ip_family="%v"}`, g, f)] = 0
		}
	}
	// The parser puts the suffix before the labels.
	check(t, "nothing happened", r, names, want)

	r.Queued(proxy.IPv4)
	want[names[5]+`{ip_family="IPv4"}`] = 1_800_000_000
	clock.Step(1500 * time.Millisecond)
	r.Synced(proxy.IPv4, true, 20*time.Millisecond, nil)
	want[names[4]+`{ip_family="IPv4"}`] = 1_800_000_001.5
	r.Synced(proxy.IPv4, false, 3*time.Millisecond, nil)
	r.Synced(proxy.IPv6, false, time.Second, errors.New("no"))
	want[names[0]+`_count{ip_family="IPv4"}`], want[names[0]+`_sum{ip_family="IPv4"}`] = 2, 0.023
	want[names[1]+`_count{ip_family="IPv4"}`], want[names[1]+`_sum{ip_family="IPv4"}`] = 1, 0.020
	want[names[2]+`_count{ip_family="IPv4"}`], want[names[2]+`_sum{ip_family="IPv4"}`] = 1, 0.003
	want[names[0]+`_count{ip_family="IPv6"}`], want[names[0]+`_sum{ip_family="IPv6"}`] = 1, 1
	want[names[2]+`_count{ip_family="IPv6"}`], want[names[2]+`_sum{ip_family="IPv6"}`] = 1, 1
	want[names[3]+`{ip_family="IPv6"}`] = 1
	check(t, "two writes and a failure", r, names, want)

	buckets := scrape(t, r)[names[0]].samples
	for bound, count := range map[string]float64{"0.001": 0, "0.004": 1, "0.016": 1, "0.032": 2, "+Inf": 2} {
		if got := buckets[fmt.Sprintf(`_bucket{ip_family="IPv4",le="%s"}`, bound)]; got != count {
			t.Errorf("bucket %s holds %g, want %g", bound, got, count)
		}
	}
}

// What is pending ends when both families have it; what is no news is not pending.
func TestChanges(t *testing.T) {
	clock := newClock()
	r := newRecorder(t, clock)
	r.InStep(proxy.IPv4)
	r.InStep(proxy.IPv6)
	names := []string{
		"kubeproxy_sync_proxy_rules_service_changes_total", "kubeproxy_sync_proxy_rules_service_changes_pending",
		"kubeproxy_sync_proxy_rules_endpoint_changes_total", "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
	}
	expect := func(step string, v ...float64) {
		t.Helper()
		want := map[string]float64{}
		for i, name := range names {
			want[name] = v[i]
		}
		check(t, step, r, names, want)
	}
	service := source.Change{Kind: source.Service, Object: &corev1.Service{}}
	r.Received(service, true)
	r.Received(slice("a", discoveryv1.AddressTypeIPv4, time.Time{}), true)
	r.Received(source.Change{Kind: source.EndpointSlice, Namespace: "ns", Name: "b"}, true)
	r.Received(source.Change{Kind: source.Node, Object: &corev1.Node{}}, true)
	expect("received", 1, 1, 2, 2)
	r.Received(service, false)
	expect("no news", 2, 1, 2, 2)
	r.Synced(proxy.IPv4, false, time.Millisecond, nil)
	r.Synced(proxy.IPv6, false, time.Millisecond, errors.New("no"))
	expect("one family", 2, 1, 2, 2)
	r.InStep(proxy.IPv6)
	expect("both", 2, 0, 2, 0)
}

func TestNetworkProgramming(t *testing.T) {
	clock := newClock()
	start := clock.Now()
	r := newRecorder(t, clock)
	const name = "kubeproxy_network_programming_duration_seconds"
	expect := func(step string, count4, sum4, count6, sum6 float64) {
		t.Helper()
		check(t, step, r, []string{name}, map[string]float64{
			name + `_count{ip_family="IPv4"}`: count4, name + `_sum{ip_family="IPv4"}`: sum4,
			name + `_count{ip_family="IPv6"}`: count6, name + `_sum{ip_family="IPv6"}`: sum6,
		})
	}
	clock.Step(10 * time.Second)
	r.Received(slice("before", discoveryv1.AddressTypeIPv4, start.Add(-time.Second)), true)
	r.Received(slice("none", discoveryv1.AddressTypeIPv4, time.Time{}), true)
	r.Received(slice("same", discoveryv1.AddressTypeIPv4, start.Add(time.Second)), false)
	r.Received(slice("name", discoveryv1.AddressTypeFQDN, start.Add(time.Second)), true)
	r.Received(source.Change{Kind: source.EndpointSlice, Namespace: "ns", Name: "gone"}, true)
	r.InStep(proxy.IPv4)
	expect("nothing to measure", 0, 0, 0, 0)

	r.Received(slice("a", discoveryv1.AddressTypeIPv4, start.Add(8*time.Second)), true)
	r.Received(slice("a", discoveryv1.AddressTypeIPv4, start.Add(9*time.Second)), true)
	r.Received(slice("b", discoveryv1.AddressTypeIPv6, start.Add(9*time.Second)), true)
	r.Received(slice("ahead", discoveryv1.AddressTypeIPv6, start.Add(time.Hour)), true)
	r.Synced(proxy.IPv4, false, time.Second, errors.New("no"))
	expect("not written", 0, 0, 0, 0)
	clock.Step(time.Second)
	r.Synced(proxy.IPv4, true, time.Second, nil)
	expect("IPv4 written", 2, 3+2, 0, 0)
	clock.Step(2 * time.Second)
	r.InStep(proxy.IPv6)
	expect("IPv6 had nothing to write", 2, 5, 2, 4)
	r.InStep(proxy.IPv6)
	expect("measured once", 2, 5, 2, 4)

	for range 2 * maxTriggers {
		r.Received(slice("a", discoveryv1.AddressTypeIPv4, clock.Now()), true)
	}
	if got := len(r.of(proxy.IPv4).triggers); got != maxTriggers {
		t.Errorf("%d times are kept, want %d at most", got, maxTriggers)
	}
}

func TestPlans(t *testing.T) {
	port := func(name string) proxy.ServicePortName {
		return proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "ns", Name: "s"}, Port: name, Protocol: proxy.TCP}
	}
	pool := func(n int) *proxy.Pool { return &proxy.Pool{Slots: make([]netip.AddrPort, n)} }
	plan := func(routes ...proxy.Route) *proxy.ServicePlan {
		p := &proxy.ServicePlan{}
		for i := range routes {
			p.Frontends = append(p.Frontends, proxy.FrontendRoute{Route: &routes[i]})
		}
		return p
	}
	tests := []struct {
		name string
		plan *proxy.ServicePlan
		want planTally
	}{
		{"none", nil, planTally{}},
		{"no ports", plan(), planTally{services: 1}},
		{"the endpoints of a port count once", plan(
			proxy.Route{Port: port("a"), Pool: pool(3)},
			proxy.Route{Port: port("a"), Kind: proxy.NodePort, Pool: pool(3)},
			proxy.Route{Port: port("b"), Pool: pool(2)},
		), planTally{services: 1, endpoints: 5}},
		{"no endpoints at all are not a matter of policy", plan(
			proxy.Route{Port: port("a"), Pool: pool(0)},
			proxy.Route{Port: port("a"), Kind: proxy.NodePort, Pool: pool(0), LocalPool: pool(0)},
		), planTally{services: 1}},
		{"internalTrafficPolicy Local", plan(
			proxy.Route{Port: port("a"), Pool: pool(0), WhenEmpty: proxy.Drop},
			proxy.Route{Port: port("a"), Kind: proxy.NodePort, Pool: pool(4)},
		), planTally{services: 1, endpoints: 4, noLocalInternal: 1}},
		{"externalTrafficPolicy Local, two ports", plan(
			proxy.Route{Port: port("a"), Pool: pool(4)},
			proxy.Route{Port: port("a"), Kind: proxy.NodePort, Pool: pool(4), LocalPool: pool(0), WhenEmpty: proxy.Drop},
			proxy.Route{Port: port("a"), Kind: proxy.LoadBalancerIP, Pool: pool(4), LocalPool: pool(0), WhenEmpty: proxy.Drop},
			proxy.Route{Port: port("b"), Kind: proxy.NodePort, Pool: pool(4), LocalPool: pool(0), WhenEmpty: proxy.Drop},
			proxy.Route{Port: port("c"), Kind: proxy.NodePort, Pool: pool(4), LocalPool: pool(1), WhenEmpty: proxy.Drop},
		), planTally{services: 1, endpoints: 12, noLocalExternal: 2}},
	}
	r := newRecorder(t, newClock())
	var sum planTally
	for _, test := range tests {
		if got := tally(test.plan); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
		r.Planned(proxy.IPv6, nil, test.plan, 7)
		sum.services += test.want.services
		sum.endpoints += test.want.endpoints
		sum.noLocalInternal += test.want.noLocalInternal
		sum.noLocalExternal += test.want.noLocalExternal
	}
	r.Planned(proxy.IPv6, tests[2].plan, nil, 4)
	if services, endpoints := r.Served(); services != sum.services-1 || endpoints != sum.endpoints-5 {
		t.Errorf("%d Services with %d endpoints are served, want %d and %d", services, endpoints, sum.services-1, sum.endpoints-5)
	}
	names := []string{"sluice_services", "sluice_frontends", "sluice_endpoints", "kubeproxy_sync_proxy_rules_no_local_endpoints_total"}
	check(t, "all but one", r, names, map[string]float64{
		`sluice_services{ip_family="IPv4"}`: 0, `sluice_frontends{ip_family="IPv4"}`: 0, `sluice_endpoints{ip_family="IPv4"}`: 0,
		`sluice_services{ip_family="IPv6"}`:                       float64(sum.services - 1),
		`sluice_frontends{ip_family="IPv6"}`:                      4,
		`sluice_endpoints{ip_family="IPv6"}`:                      float64(sum.endpoints - 5),
		names[3] + `{traffic_policy="internal",ip_family="IPv4"}`: 0, names[3] + `{traffic_policy="external",ip_family="IPv4"}`: 0,
		names[3] + `{traffic_policy="internal",ip_family="IPv6"}`: float64(sum.noLocalInternal),
		names[3] + `{traffic_policy="external",ip_family="IPv6"}`: float64(sum.noLocalExternal),
	})
}

func TestOthers(t *testing.T) {
	clock := newClock()
	r := newRecorder(t, clock)
	r.FlowsChecked(proxy.IPv4, 2*time.Millisecond, 7)
	r.FlowsChecked(proxy.IPv4, 2*time.Millisecond, 0)
	r.Repaired(proxy.IPv6)
	r.SetLocalNodePorts(proxy.IPv4, 3, 1)
	r.SetSource(true, 2)
	r.o.Store.InStep(source.Service, "5", clock.Now().Add(-time.Minute))
	r.o.Store.Apply(source.Change{Kind: source.Node, Name: "n", Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, &store.Dirty{})
	names := []string{
		"kubeproxy_conntrack_reconciler_sync_duration_seconds", "kubeproxy_conntrack_reconciler_deleted_entries_total",
		"sluice_drift_repairs_total", "kubeproxy_nftables_localhost_nodeport_listeners",
		"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total", "sluice_source_synced", "sluice_source_problems",
		"sluice_cache_age_seconds", "sluice_objects", "kubeproxy_proxy_healthz_total", "sluice_cache_size_bytes", "sluice_cache_last_commit_timestamp_seconds",
	}
	check(t, "all", r, names, map[string]float64{
		names[0] + `_count{ip_family="IPv4"}`: 2, names[0] + `_sum{ip_family="IPv4"}`: 0.004,
		names[0] + `_count{ip_family="IPv6"}`: 0, names[0] + `_sum{ip_family="IPv6"}`: 0,
		names[1] + `{ip_family="IPv4"}`: 7, names[1] + `{ip_family="IPv6"}`: 0,
		names[2] + `{ip_family="IPv4"}`: 0, names[2] + `{ip_family="IPv6"}`: 1,
		names[3] + `{ip_family="IPv4"}`: 3, names[3] + `{ip_family="IPv6"}`: 0,
		names[4] + `{ip_family="IPv4"}`: 1, names[4] + `{ip_family="IPv6"}`: 0,
		names[5]: 1, names[6]: 2, names[7] + `{kind="Service"}`: 60,
		names[8] + `{kind="Service"}`: 0, names[8] + `{kind="EndpointSlice"}`: 0, names[8] + `{kind="Node"}`: 1, names[8] + `{kind="ServiceCIDR"}`: 0,
		names[9] + `{code="200"}`: 0, names[9] + `{code="503"}`: 0, names[10]: 0, names[11]: 0,
	})
	r.SetSource(false, 0)
	check(t, "source lost", r, names[5:7], map[string]float64{names[5]: 0, names[6]: 0})
}

// A nil Recorder, and one of another family, record nothing.
func TestNothingToRecord(t *testing.T) {
	only4 := New(Options{Families: []proxy.Family{proxy.IPv4}, ReadCounters: noCounters})
	for _, r := range []*Recorder{nil, only4} {
		r.Received(slice("a", discoveryv1.AddressTypeIPv6, time.Now().Add(time.Hour)), true)
		r.SetSource(true, 0)
		r.Planned(proxy.IPv6, nil, &proxy.ServicePlan{}, 0)
		r.Queued(proxy.IPv6)
		r.Synced(proxy.IPv6, true, time.Second, nil)
		r.InStep(proxy.IPv6)
		r.FlowsChecked(proxy.IPv6, time.Second, 1)
		r.Repaired(proxy.IPv6)
		r.SetLocalNodePorts(proxy.IPv6, 1, 1)
		if services, endpoints := r.Served(); services+endpoints != 0 {
			t.Errorf("%d Services, %d endpoints", services, endpoints)
		}
	}
	for name, p := range scrape(t, only4) {
		for labels := range p.samples {
			if strings.Contains(labels, "IPv6") {
				t.Errorf("%s%s", name, labels)
			}
		}
	}
}

// Scrapes go on beside the loop; for the race detector.
func TestConcurrent(t *testing.T) {
	r := newRecorder(t, newClock())
	stop := make(chan struct{})
	var scrapes sync.WaitGroup
	for range 2 {
		scrapes.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					scrape(t, r)
				}
			}
		})
	}
	for range 200 {
		r.Received(slice("a", discoveryv1.AddressTypeIPv4, time.Now().Add(time.Hour)), true)
		r.Queued(proxy.IPv4)
		r.Synced(proxy.IPv4, false, time.Millisecond, nil)
		r.Planned(proxy.IPv4, nil, &proxy.ServicePlan{}, 0)
		r.SetSource(true, 1)
	}
	close(stop)
	scrapes.Wait()
}
