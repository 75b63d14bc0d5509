package proxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// changes prints a delta, one line per change, with template names.
func changes(f Family, d Delta) string {
	var b strings.Builder
	route := func(r *Route) string {
		if r == nil {
			return "none"
		}
		return fmt.Sprintf("%v %v", r.Port, r.Pool.Slots)
	}
	for _, c := range d.Frontends {
		fmt.Fprintf(&b, "%v/%v: %s => %s\n", netip.AddrPortFrom(c.Addr, c.Port), c.Protocol, route(c.Old), route(c.New))
	}
	for _, list := range []struct {
		sign, what string
		addrs      []netip.Addr
	}{
		{"+", "cluster IPs", d.AddedClusterIPs}, {"-", "cluster IPs", d.RemovedClusterIPs},
		{"+", "local endpoints", d.AddedLocalEndpoints}, {"-", "local endpoints", d.RemovedLocalEndpoints},
	} {
		if list.addrs != nil {
			fmt.Fprintf(&b, "%s%s %v\n", list.sign, list.what, list.addrs)
		}
	}
	return named(f, b.String())
}

// simplePlan is web with one port and these endpoints, planned from the state.
func (s *State) simplePlan(endpoints string, change change) *ServicePlan {
	svc := testService(s.family)
	if change != nil {
		change(s.family, svc)
	}
	return PlanService(testNode(s.family), svc, []*discoveryv1.EndpointSlice{testSlice(s.family, "a", endpoints)}, s.Slots)
}

func TestSet(t *testing.T) {
	web := ServiceName{"shop", "web"}
	for _, f := range Families {
		s := NewState(f, Settings{})
		for _, step := range []struct {
			name string
			plan func() *ServicePlan
			want string
		}{
			{"comes", func() *ServicePlan { return s.simplePlan("pod1 pod2@here", nil) }, `
cluster1:80/TCP: none => shop/web:http [pod1:8080 pod2:8080]
+cluster IPs [cluster1]
+local endpoints [pod2]
`},
			{"same", func() *ServicePlan { return s.simplePlan("pod2@here pod1", nil) }, "\n"},
			{"one endpoint for another", func() *ServicePlan { return s.simplePlan("pod3 pod2@here", nil) }, `
cluster1:80/TCP: shop/web:http [pod1:8080 pod2:8080] => shop/web:http [pod3:8080 pod2:8080]
`},
			{"only what serves elsewhere changes", func() *ServicePlan { return s.simplePlan("pod3 pod2@here pod4,draining", nil) }, `
cluster1:80/TCP: shop/web:http [pod3:8080 pod2:8080] => shop/web:http [pod3:8080 pod2:8080]
`},
			{"a frontend more", func() *ServicePlan {
				return s.simplePlan("pod3 pod2@here pod4,draining", func(f Family, svc *corev1.Service) { svc.Spec.ExternalIPs = []string{ip(f, "ext1")} })
			}, `
ext1:80/TCP: none => shop/web:http [pod3:8080 pod2:8080]
`},
			{"another clusterIP", func() *ServicePlan {
				return s.simplePlan("pod3", func(f Family, svc *corev1.Service) { svc.Spec.ClusterIPs[0] = ip(f, "cluster2") })
			}, `
cluster1:80/TCP: shop/web:http [pod3:8080 pod2:8080] => none
ext1:80/TCP: shop/web:http [pod3:8080 pod2:8080] => none
cluster2:80/TCP: none => shop/web:http [pod3:8080]
+cluster IPs [cluster2]
-cluster IPs [cluster1]
-local endpoints [pod2]
`},
			{"goes", func() *ServicePlan { return nil }, `
cluster2:80/TCP: shop/web:http [pod3:8080] => none
-cluster IPs [cluster2]
`},
			{"goes again", func() *ServicePlan { return nil }, "\n"},
		} {
			d := s.Set(web, step.plan())
			if diff := cmp.Diff(step.want[1:], changes(f, d)); diff != "" {
				t.Errorf("%v, %s: delta (-want +got):\n%s", f, step.name, diff)
			}
			if d.Empty() != (step.want == "\n") {
				t.Errorf("%v, %s: Empty is %v", f, step.name, d.Empty())
			}
		}
		if len(s.plans)+len(s.routes)+len(s.clusterIPs)+len(s.localEndpoints) != 0 {
			t.Errorf("%v: a state without Services still holds %v", f, s)
		}
	}
}

func TestStateReads(t *testing.T) {
	for _, f := range Families {
		settings := Settings{ServiceCIDRs: prefixes(f, "10.96.0.0/16")}
		s := NewState(f, settings)
		plan := s.simplePlan("pod1@here", loadBalancer)
		s.Set(plan.Name, plan)
		if s.Family() != f || s.Plan(plan.Name) != plan || s.Plan(ServiceName{}) != nil {
			t.Errorf("%v: not the plan that was set", f)
		}
		if got := slices.Collect(s.Plans()); len(got) != 1 || got[0] != plan {
			t.Errorf("%v: plans %v", f, got)
		}
		first := plan.Frontends[0]
		if s.Route(first.Frontend) != first.Route || s.Route(Frontend{first.Addr, 81, TCP}) != nil {
			t.Errorf("%v: not the route that was set", f)
		}
		if got := maps.Collect(s.Routes()); len(got) != 4 || got[first.Frontend] != first.Route {
			t.Errorf("%v: routes %v", f, got)
		}
		if diff := cmp.Diff(ipAddrs(f, "cluster1"), slices.Collect(s.ClusterIPs()), compareAddrs); diff != "" {
			t.Errorf("%v: cluster IPs (-want +got):\n%s", f, diff)
		}
		if diff := cmp.Diff(ipAddrs(f, "pod1"), slices.Collect(s.LocalEndpoints()), compareAddrs); diff != "" {
			t.Errorf("%v: local endpoints (-want +got):\n%s", f, diff)
		}
		if pool, local := s.Slots(first.Frontend); len(pool) != 1 || local != nil {
			t.Errorf("%v: slots %v and %v, want one and none", f, pool, local)
		}
		if pool, local := s.Slots(Frontend{}); pool != nil || local != nil {
			t.Errorf("%v: slots of an unknown frontend", f)
		}
	}
}

func TestSetSettings(t *testing.T) {
	cidr := netip.MustParsePrefix
	s := NewState(IPv4, Settings{})
	for i, step := range []struct {
		to      Settings
		changed bool
	}{
		{Settings{}, false},
		{Settings{ServiceCIDRs: []netip.Prefix{cidr("10.96.0.0/16")}}, true},
		{Settings{ServiceCIDRs: []netip.Prefix{cidr("10.96.0.0/16")}}, false},
		{Settings{Detection: Detection{Mode: DetectNodeCIDR, PodCIDRs: []netip.Prefix{cidr("10.42.0.0/24")}}}, true},
		{Settings{Detection: Detection{Mode: DetectNodeCIDR, PodCIDRs: []netip.Prefix{cidr("10.42.1.0/24")}}}, true},
		{Settings{Detection: Detection{Mode: DetectClusterCIDR, PodCIDRs: []netip.Prefix{cidr("10.42.1.0/24")}}}, true},
		{Settings{Detection: Detection{Mode: DetectBridgeInterface, Interface: "cni0"}}, true},
		{Settings{Detection: Detection{Mode: DetectBridgeInterface, Interface: "cni1"}}, true},
		{Settings{Detection: Detection{Mode: DetectBridgeInterface, Interface: "cni1"}}, false},
	} {
		if got := s.SetSettings(step.to); got != step.changed {
			t.Errorf("step %d: changed is %v, want %v", i, got, step.changed)
		}
		if diff := cmp.Diff(step.to, s.Settings(), compareAddrs); diff != "" {
			t.Errorf("step %d: settings (-want +got):\n%s", i, diff)
		}
	}
}

// Every part of a route that a writer or the flow check reads makes two routes differ.
func TestRoutesDiffer(t *testing.T) {
	pool := func(id uint32, slots string) *Pool { return &Pool{Slots: ats(IPv4, slots), AffinityID: id} }
	base := func() *Route {
		return &Route{
			Port: ServicePortName{ServiceName{"a", "b"}, "c", TCP}, Kind: ExternalIP,
			Pool: pool(2, "pod1:80 pod2:80"), LocalPool: pool(3, "pod1:80"),
			Masquerade: MasqueradeHost, Affinity: 10, SourceRanges: prefixes(IPv4, "10.0.0.0/8"),
			WhenEmpty: Drop, Others: ats(IPv4, "pod3:80"),
		}
	}
	if !base().equal(base()) {
		t.Error("a route differs from itself")
	}
	for name, change := range map[string]func(*Route){
		"Port":           func(r *Route) { r.Port.Name = "other" },
		"Kind":           func(r *Route) { r.Kind = NodePort },
		"Pool":           func(r *Route) { r.Pool = pool(2, "pod2:80 pod1:80") },
		"pool shrunk":    func(r *Route) { r.Pool = pool(2, "pod1:80") },
		"AffinityID":     func(r *Route) { r.Pool = pool(4, "pod1:80 pod2:80") },
		"LocalPool":      func(r *Route) { r.LocalPool = pool(3, "pod2:80") },
		"no LocalPool":   func(r *Route) { r.LocalPool = nil },
		"Masquerade":     func(r *Route) { r.Masquerade = MasqueradeAlways },
		"Affinity":       func(r *Route) { r.Affinity = 11 },
		"SourceRanges":   func(r *Route) { r.SourceRanges = prefixes(IPv4, "10.0.0.0/9") },
		"nobody allowed": func(r *Route) { r.SourceRanges = []netip.Prefix{} },
		"all allowed":    func(r *Route) { r.SourceRanges = nil },
		"WhenEmpty":      func(r *Route) { r.WhenEmpty = Reject },
		"Others":         func(r *Route) { r.Others = nil },
	} {
		other := base()
		change(other)
		if base().equal(other) || other.equal(base()) {
			t.Errorf("routes with different %s count as equal", name)
		}
	}
	if all, nobody := (&Route{Pool: &Pool{}}), (&Route{Pool: &Pool{}, SourceRanges: []netip.Prefix{}}); all.equal(nobody) {
		t.Error("to let all sources in and to let none in count as equal")
	}
	if base().equal(nil) || (*Route)(nil).equal(base()) || !(*Route)(nil).equal(nil) {
		t.Error("no route is equal to no route, and to nothing else")
	}
}
