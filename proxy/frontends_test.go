package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNotServed(t *testing.T) {
	for name, change := range map[string]change{
		"another proxy's": func(_ Family, svc *corev1.Service) {
			svc.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""}
		},
		"headless": func(_ Family, svc *corev1.Service) {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "None", []string{"None"}
		},
		"ExternalName": func(_ Family, svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeExternalName },
		"no clusterIP": func(_ Family, svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil },
		"other family": func(f Family, svc *corev1.Service) { svc.Spec.IPFamilies[0] = familyName(IPv4 + IPv6 - f) },
		"unallocated":  func(_ Family, svc *corev1.Service) { svc.Spec.ClusterIPs[0] = "" },
		"one IP of two": func(f Family, svc *corev1.Service) {
			svc.Spec.IPFamilies = []corev1.IPFamily{familyName(IPv4 + IPv6 - f), familyName(f)}
		},
		"other family, families not named": func(f Family, svc *corev1.Service) {
			svc.Spec.IPFamilies, svc.Spec.ClusterIPs = nil, []string{ip(IPv4+IPv6-f, "cluster1")}
		},
	} {
		for _, f := range Families {
			svc := testService(f)
			change(f, svc)
			if got := describe(f, PlanService(testNode(f), svc, nil, nil)); got != "not served\n" {
				t.Errorf("%s, %v: planned:\n%s", name, f, got)
			}
		}
	}
}

func TestClusterIPOfFamily(t *testing.T) {
	both := func(svc *corev1.Service) {
		svc.Spec.ClusterIPs = []string{ip(IPv4, "cluster1"), ip(IPv6, "cluster2")}
		svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	for name, change := range map[string]func(*corev1.Service){
		"both":                both,
		"families not named":  func(svc *corev1.Service) { both(svc); svc.Spec.IPFamilies = nil },
		"leading zeros":       func(svc *corev1.Service) { both(svc); svc.Spec.ClusterIPs[0] = "10.096.000.01" },
		"IPv4 written as v6":  func(svc *corev1.Service) { both(svc); svc.Spec.ClusterIPs[0] = "::ffff:10.96.0.1" },
		"IPv6 in another way": func(svc *corev1.Service) { both(svc); svc.Spec.ClusterIPs[1] = "FD00:0096:0::0002" },
	} {
		svc := testService(IPv4)
		change(svc)
		for f, want := range map[Family]string{IPv4: "cluster1", IPv6: "cluster2"} {
			plan := PlanService(testNode(f), svc, nil, nil)
			if diff := cmp.Diff(ipAddrs(f, want), plan.ClusterIPs, compareAddrs); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", name, f, diff)
			}
		}
	}
	svc := testService(IPv4)
	svc.Spec.ClusterIPs = nil // objects of old API servers
	if plan := PlanService(testNode(IPv4), svc, nil, nil); plan == nil || len(plan.ClusterIPs) != 1 {
		t.Error("a Service with clusterIP and no clusterIPs is not served")
	}
}

// TestExternalIPs: what a Service names in externalIPs is served as --external-ips says; other addresses of it are.
func TestExternalIPs(t *testing.T) {
	for _, f := range Families {
		svc := testService(f)
		svc.Spec.ExternalIPs = []string{ip(f, "ext1"), ip(f, "node1"), ip(f, "cluster2"), ip(f, "lb1"), ip(IPv4+IPv6-f, "ext1"), "x"}
		n := testNode(f)
		taken := netip.MustParseAddr(ip(f, "cluster2"))
		n.Taken = []netip.Prefix{netip.PrefixFrom(taken, taken.BitLen())}
		for which, want := range map[string][]string{
			"":                 {"cluster1", "ext1", "node1", "cluster2", "lb1"},
			ExternalIPsAll:     {"cluster1", "ext1", "node1", "cluster2", "lb1"},
			ExternalIPsForeign: {"cluster1", "ext1", "lb1"},
			ExternalIPsNone:    {"cluster1"},
		} {
			n.ExternalIPs = which
			plan := PlanService(n, svc, nil, nil)
			var got []netip.Addr
			for _, fr := range plan.Frontends {
				if !slices.Contains(got, fr.Addr) {
					got = append(got, fr.Addr)
				}
			}
			if diff := cmp.Diff(ipAddrs(f, strings.Join(want, " ")), got, compareAddrs); diff != "" {
				t.Errorf("%v, %q (-want +got):\n%s", f, which, diff)
			}
			if ignored := 1 + 5 - len(want); len(plan.Ignored) != ignored {
				t.Errorf("%v, %q: %q, want %d", f, which, plan.Ignored, ignored)
			}
		}
	}
}

// TestAddressesOfNobody: an address that no one host has is served to nobody, whatever a Service says.
func TestAddressesOfNobody(t *testing.T) {
	for f, list := range map[Family][]string{
		IPv4: {"0.0.0.0", "127.0.0.1", "127.9.9.9", "224.0.0.1", "239.1.2.3", "255.255.255.255", "::ffff:127.0.0.1"},
		IPv6: {"::", "::1", "ff02::1", "fe80::1%eth0"},
	} {
		for _, addr := range list {
			svc := testService(f)
			svc.Spec.ExternalIPs = []string{addr}
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
			plan := PlanService(testNode(f), svc, nil, nil)
			for _, fr := range plan.Frontends {
				if fr.Route.Kind == ExternalIP || fr.Route.Kind == LoadBalancerIP {
					t.Errorf("%s is served: %v", addr, fr.Frontend)
				}
			}
			if len(plan.Ignored) != 2 {
				t.Errorf("%s: ignored %q", addr, plan.Ignored)
			}
		}
	}
}
