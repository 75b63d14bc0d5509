package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/proxy"
	"sluice/test/cluster"
	"sluice/test/rig"
)

// testTakeover has somebody who may create Services, and no more than that, try to get traffic of others by the addresses that they name.
func testTakeover(e *env) {
	server, err := url.Parse(e.cluster.URL)
	e.must(err)
	port, err := strconv.ParseInt(server.Port(), 10, 32)
	e.must(err)
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod3")...)
	e.refused("an endpoint at ", func(addr string) cluster.Object {
		slice := e.slices("grab")[0].(*discoveryv1.EndpointSlice)
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{addr}}}
		return slice
	}, "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0")
	e.refused("an external IP ", func(addr string) cluster.Object {
		return e.service("grab", "vip3", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{addr} })
	}, "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0")
	e.refused("a NodePort ", func(number string) cluster.Object {
		n, err := strconv.ParseInt(number, 10, 32)
		e.must(err)
		return e.service("grab", "vip3", nodePort(int32(n)))
	}, "22", "6443", "10250", "10256")

	// Before there is such a Service its address can be named.
	squatter := e.service("a-squatter", "vip4", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{e.Names["vip5"].String()} })
	e.apply(squatter)
	e.apply(e.slices("a-squatter", "pod2")...)
	time.Sleep(1100 * time.Millisecond) // ages are in seconds
	e.apply(e.service("later", "vip5"))
	e.apply(e.slices("later", "pod3")...)

	// What an API server takes: addresses of the node, of itself, of another Service, and of nobody.
	grab := e.service("grab", "vip3", func(s *corev1.ServiceSpec) {
		s.Ports = []corev1.ServicePort{{Name: "t", Port: 8080}, {Name: "api", Port: int32(port)}, {Name: "web", Port: 80}}
		s.ExternalIPs = []string{e.Names["node"].String(), server.Hostname(), e.Names["vip2"].String(), e.Names["ext1"].String(), "255.255.255.255"}
	})
	e.apply(grab)
	slice := e.slices("grab", "pod2")[0].(*discoveryv1.EndpointSlice)
	for _, name := range []string{"api", "web"} {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: new(int32(8080))})
	}
	e.apply(slice)

	e.T.Log("as Kubernetes allows it")
	e.Run()
	e.ReachIn(proxy.IPv4, 0, "outside tcp ext1:8080", "pod2:8080")
	e.ReachIn(proxy.IPv4, 0, "outside tcp node:8080", "pod2:8080")
	e.ReachIn(proxy.IPv4, 0, "pod1 tcp vip2:80", "pod3:8080") // the older Service has it
	e.Reach(0, "pod1 tcp vip5:80", "pod3:8080")               // whose ClusterIP it is
	e.ReachIn(proxy.IPv4, 0, "node tcp loopback:8080", "refused")
	if table := e.Table(proxy.IPv4); strings.Contains(table, "255.255.255.255") {
		e.T.Error("the broadcast address is served")
	}
	e.Stop()

	e.T.Log("--external-ips foreign")
	e.Args = append(e.Args, "--external-ips", "foreign")
	e.Run()
	e.ReachIn(proxy.IPv4, 0, "outside tcp ext1:8080", "pod2:8080")
	e.ReachIn(proxy.IPv4, 0, "outside tcp node:8080", "node:8080")
	e.ReachIn(proxy.IPv4, 0, "node tcp node:8080", "node:8080")
	e.ReachIn(proxy.IPv4, 0, "pod1 tcp vip2:80", "pod3:8080")
	e.awaitEvent("grab", "NotServed", "--external-ips foreign")
	e.Stop()
	e.Run() // with new connections to the API server
	e.AwaitNoProblem(rig.Patience)
	e.apply(e.slices("web", "far1")...)
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "far1:8080")
	e.Stop()

	e.T.Log("--external-ips none")
	e.Args[len(e.Args)-1] = "none"
	e.Run()
	e.ReachIn(proxy.IPv4, 0, "outside tcp ext1:8080", "unreachable")
	e.ReachIn(proxy.IPv4, 0, "outside tcp node:8080", "node:8080")
	e.Stop()

	// Who may write a Service's status could do as much by it, but for what is no host's address.
	e.Args = e.Args[:len(e.Args)-2]
	grab.Spec.Type, grab.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, nil
	e.apply(grab)
	nobody := []string{"127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"}
	for _, addr := range append(nobody, e.Names["lb1"].String()) {
		grab.Status.LoadBalancer.Ingress = append(grab.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr})
	}
	e.must(e.cluster.ApplyStatus(e.T.Context(), grab))
	e.Run()
	e.ReachIn(proxy.IPv4, 0, "outside tcp lb1:8080", "pod2:8080")
	e.ReachIn(proxy.IPv4, 0, "node tcp loopback:8080", "refused")
	plans, stderr, code := e.Command("get", "services", "-o", "json")
	if code != 0 {
		e.T.Fatal(stderr)
	}
	for _, addr := range nobody {
		if want := fmt.Sprintf("status.loadBalancer.ingress: %v is not an address that can be served", netip.MustParseAddr(addr)); !strings.Contains(plans, want) {
			e.T.Errorf("no word of %s in %s", want, plans)
		}
	}
}

// refused expects that the API server takes no object that is made with any of the values.
func (e *env) refused(what string, object func(string) cluster.Object, values ...string) {
	e.T.Helper()
	for _, v := range values {
		obj := object(v)
		var answer *cluster.StatusError
		if err := e.cluster.Apply(e.T.Context(), obj); err == nil {
			e.made = append(e.made, obj)
			e.T.Errorf("the API server takes %s%s", what, v)
		} else if !errors.As(err, &answer) || answer.Code != http.StatusUnprocessableEntity {
			e.T.Fatal(err)
		}
	}
}
