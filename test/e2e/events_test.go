package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
	"sluice/test/rig"
)

// testServiceEvents makes Services of which not all is served: who made them finds an event that says why, and Services of others go on.
func testServiceEvents(e *env) {
	taken := func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{e.Names["ext1"].String()} }
	web, thief := e.service("web", "vip2", taken), e.service("web-thief", "vip3", taken)
	e.apply(web)
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	e.apply(thief)
	e.apply(e.slices("web-thief", "pod3")...)
	e.Reach(rig.Soon, "pod1 tcp vip3:80", "pod3:8080")
	e.ReachIn(proxy.IPv4, 0, "outside tcp ext1:80", "pod2:8080")
	e.awaitEvent("web-thief", "AddressConflict", "belongs to default/web")

	// What one Service can make of the memory has an end.
	large := e.service("large", "vip4", func(s *corev1.ServiceSpec) { s.Ports = nil })
	slice := e.slices("large")[0].(*discoveryv1.EndpointSlice)
	slice.Ports = nil
	for i := range 100 {
		name, port := fmt.Sprint("p", i), int32(1000+i)
		large.Spec.Ports = append(large.Spec.Ports, corev1.ServicePort{Name: name, Port: port})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: new(int32(8080))})
	}
	for _, name := range []string{"ext2", "ext3", "lb1", "lb2"} {
		large.Spec.ExternalIPs = append(large.Spec.ExternalIPs, e.Names[name].String())
	}
	pod := e.Names["pod2"]
	for range 1000 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{pod.String()}})
		pod = pod.Next()
	}
	if n := len(large.Spec.Ports) * (1 + len(large.Spec.ExternalIPs)) * len(slice.Endpoints); n < proxy.MaxPairs {
		e.T.Fatalf("%d pairs, which is not too much", n)
	}
	e.apply(large, slice)
	e.awaitEvent("large", "NotServed", "make several Services of it")
	e.ReachIn(proxy.IPv4, 0, "pod1 tcp vip2:80", "pod2:8080")
	e.apply(e.slices("web", "far1")...)
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "far1:8080")
	e.AwaitNoProblem(rig.Patience)
}

// awaitEvent waits until a Service has an event, as kubectl describe finds it.
func (e *env) awaitEvent(service, reason, note string) {
	e.T.Helper()
	text, err := e.cluster.Do(e.T.Context(), http.MethodGet, "/api/v1/namespaces/default/services/"+service, nil)
	e.must(err)
	var about metav1.PartialObjectMetadata
	e.must(json.Unmarshal([]byte(text), &about))
	e.Eventually(rig.Patience, "an event "+reason+" about "+service, func() bool {
		text, err := e.cluster.Do(e.T.Context(), http.MethodGet, "/apis/events.k8s.io/v1/namespaces/default/events", nil)
		e.must(err)
		var list eventsv1.EventList
		e.must(json.Unmarshal([]byte(text), &list))
		return slices.ContainsFunc(list.Items, func(ev eventsv1.Event) bool {
			r := ev.Regarding
			return r.Kind == "Service" && r.Name == service && r.UID == about.UID && ev.Type == corev1.EventTypeWarning && ev.Reason == reason && strings.Contains(ev.Note, note)
		})
	})
}
