package e2e

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/status"
	"sluice/test/cluster"
	"sluice/test/rig"
)

const (
	// large is what is beside what is read in an object, in bytes; tooLarge no server takes.
	large, tooLarge = 6 << 20, 9 << 20
	// largeMemory is how much more the agent may take while such an object passes: it is in a buffer for its encoding, and decoded.
	largeMemory = 96 << 20
	// largeKept is how much more it may keep of them.
	// A watch keeps its buffer for one, of each kind.
	largeKept = 24 << 20
)

// testLargeObjects sends objects with megabytes of what is not read, and some that are too large to be read at all, which are left out
// by name.
func testLargeObjects(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	time.Sleep(2 * time.Second)
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	before := e.Memory("RssAnon")
	text := strings.Repeat("x", large)
	annotated := func(obj cluster.Object, bytes int) cluster.Object {
		obj.SetAnnotations(map[string]string{"note": text[:min(bytes, large)], "more": strings.Repeat("y", max(0, bytes-large))})
		return obj
	}
	managed := e.service("managed", "vip3")
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone", FieldsV1: metav1.NewFieldsV1(`{"f:` + text + `":{}}`)}}
	e.send(event{kind: watch.Added, object: managed})
	for _, s := range e.slices("managed", "pod3") {
		e.send(event{kind: watch.Added, object: annotated(s, large)})
	}
	e.Reach(rig.Patience, "pod1 tcp vip3:80", "pod3:8080")

	// A thousand endpoints with long names.
	many := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "many", Labels: map[string]string{discoveryv1.LabelServiceName: "many"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("t"), Port: new(int32(8080))}}}
	for i := range 1000 {
		many.Endpoints = append(many.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", 20+i/200, 1+i%200)}, Hostname: new(strings.Repeat("h", 63)),
			NodeName: new("node2"), DeprecatedTopology: map[string]string{"key": text[:1000]}, TargetRef: &corev1.ObjectReference{Name: text[:253]}})
	}
	e.send(event{kind: watch.Added, object: e.service("many", "vip4")})
	e.send(event{kind: watch.Added, object: annotated(many, large)})
	e.Await(rig.Patience, "a thousand endpoints", func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Endpoints >= 1000 })

	// Too large: what was known stays, and what comes after is taken.
	for _, obj := range []cluster.Object{e.service("web", "vip5"), e.slices("managed", "pod1")[0]} {
		e.send(event{kind: watch.Modified, object: annotated(obj, tooLarge)})
		e.AwaitLog(rig.Patience, "too large", obj.GetName())
	}
	for _, s := range e.slices("managed", "far1") {
		e.send(event{kind: watch.Modified, object: s})
	}
	e.Reach(rig.Patience, "pod1 tcp vip3:80", "far1:8080")
	peak := e.Memory("VmHWM")
	e.T.Logf("memory of its own %.1f MB before, %.1f after; at most %.1f MB with the program", float64(before)/1e6, float64(e.Memory("RssAnon"))/1e6, float64(peak)/1e6)
	if program := e.Memory("RssFile"); peak-program > before+largeMemory {
		e.T.Errorf("the memory was %d KiB at most, %d before", (peak-program)>>10, before>>10)
	}
	e.Eventually(time.Minute, "the memory is given back", func() bool { return e.Memory("RssAnon") <= before+largeKept })
	e.AwaitNoProblem(inStep)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}
