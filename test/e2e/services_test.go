package e2e

import (
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice/proxy"
	"sluice/test/rig"
)

// testServices writes Services of every type, changes and deletes them.
func testServices(e *env) {
	web := e.service("web", "vip2")
	e.apply(web)
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	e.Reach(0, "node udp vip2:80", "pod2:8080")

	// Every type, while the agent runs.
	np, lb, ext := e.service("np", "vip3", nodePort(30080)), e.service("lb", "vip4"), e.service("ext", "vip5")
	lb.Spec.Type = corev1.ServiceTypeLoadBalancer
	lb.Spec.LoadBalancerSourceRanges = []string{e.Names["outside"].String() + "/32", e.Names["outsidev6"].String() + "/128"}
	ext.Spec.ExternalIPs = []string{e.Names["ext1"].String(), e.Names["ext1v6"].String()}
	e.apply(np, lb, ext)
	for _, name := range []string{"np", "lb", "ext"} {
		e.apply(e.slices(name, "pod3", "far1")...)
	}
	for _, f := range proxy.Families {
		lb.Status.LoadBalancer.Ingress = append(lb.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: e.Names["lb1"+rig.Suffix[f]].String()})
	}
	e.must(e.cluster.ApplyStatus(e.T.Context(), lb))
	headless := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: web.Spec.Ports}}
	headless.Name = "headless"
	named := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}
	named.Name = "named"
	e.apply(headless, named)
	e.apply(e.slices("headless", "pod1")...)
	for _, probe := range []string{"pod1 tcp vip3:80", "outside tcp node:30080", "node udp vip4:80", "outside tcp lb1:80", "pod2 tcp vip5:80", "outside udp ext1:80"} {
		e.Reach(rig.Soon, probe, "pod3:8080", "far1:8080")
	}
	probe := e.Probe(proxy.IPv4, "outside tcp lb1:80")
	probe.Source = e.Names["outside2"]
	if got := rig.Met(probe.Send(e.T.Context())); got != "silence" {
		e.T.Errorf("a client outside loadBalancerSourceRanges met %s", got)
	}

	// Changes: endpoints, a port, a policy, a type.
	e.apply(e.slices("web", "pod3", "far2")...)
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "pod3:8080", "far2:8080")
	e.apply(e.slices("web")...)
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "refused")
	e.apply(e.slices("web", "pod1")...)
	e.Reach(rig.Soon, "node tcp vip2:80", "pod1:8080")
	web.Spec.Ports[0].Port = 81
	e.apply(web)
	e.Reach(rig.Soon, "pod2 tcp vip2:81", "pod1:8080")
	e.Reach(rig.Soon, "pod2 tcp vip2:80", "silence|refused|unreachable")
	np.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	e.apply(np)
	e.Reach(rig.Soon, "outside tcp node:30080", "pod3:8080")
	lb.Spec.Type, lb.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeClusterIP, nil
	lb.Status = corev1.ServiceStatus{}
	e.apply(lb)
	e.Reach(rig.Soon, "outside tcp lb1:80", "silence|unreachable")
	e.Reach(0, "pod1 tcp vip4:80", "pod3:8080", "far1:8080")

	// Deleted, and a slice alone.
	e.delete(np, ext)
	e.delete(e.slices("lb")...)
	e.Reach(rig.Soon, "outside tcp node:30080", "refused")
	e.Reach(rig.Soon, "outside tcp ext1:80", "silence|unreachable")
	e.Reach(rig.Soon, "pod1 tcp vip4:80", "refused")
	e.Reach(0, "pod2 tcp vip2:81", "pod1:8080")
}

// testRights checks that all this needs no more than the ClusterRole of a node's proxy, and that the Node has an event.
func testRights(e *env) {
	bindings, err := e.cluster.Do(e.T.Context(), http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", nil)
	e.must(err)
	if n := strings.Count(bindings, `"name":"system:kube-proxy"`); n != 1 {
		e.T.Fatalf("the user system:kube-proxy has %d bindings, want that to system:node-proxier alone", n)
	}
	e.Run()
	e.Eventually(rig.Patience, "the event Starting about the Node", func() bool {
		text, err := e.cluster.Do(e.T.Context(), http.MethodGet, "/apis/events.k8s.io/v1/namespaces/default/events", nil)
		e.must(err)
		return strings.Contains(text, `"reason":"Starting"`) && strings.Contains(text, `"kind":"Node","name":"node"`) && strings.Contains(text, `"reportingController":"sluice"`)
	})
	e.AwaitNoProblem(rig.Patience)
	if n := e.Logged("forbidden"); n > 0 {
		e.T.Errorf("the server forbade %d requests", n)
	}
}
