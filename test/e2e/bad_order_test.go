package e2e

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/source"
	"sluice/proxy"
	"sluice/test/cluster"
	"sluice/test/rig"
)

// testOrder sends events twice, of what is unknown, and in another order than they happened. In the end what a list says is true.
func testOrder(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	old := e.slices("web", "pod2")
	before := e.versions()
	e.apply(e.slices("web", "pod3")...)
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "pod3:8080")

	// What comes twice, or is not known, does no harm.
	now := e.slices("web", "pod3")
	for i, s := range now {
		e.send(event{kind: watch.Added, object: s}, event{kind: watch.Added, object: s}, event{kind: watch.Modified, object: e.slices("unknown", "pod1")[i]}, event{kind: watch.Deleted, object: e.slices("nobody", "pod1")[i]})
	}
	e.Reach(0, "pod1 tcp vip2:80", "pod3:8080")
	e.relist()

	// An older state comes after the newer one.
	var late []event
	for _, s := range old {
		late = append(late, event{kind: watch.Modified, object: s, version: before})
	}
	e.send(late...)
	e.AwaitLog(rig.Patience, "in another order than they happened")
	e.Reach(rig.Patience, "pod1 tcp vip2:80", "pod3:8080")
	e.followed()

	// An object was deleted before it came.
	e.apply(e.service("gone", "vip4"))
	e.Reach(rig.Patience, "pod1 tcp vip4:80", "refused")
	late = nil
	for _, s := range e.slices("gone", "pod2") {
		now := e.versions()
		late = append(late, event{kind: watch.Deleted, object: s, version: now + 2}, event{kind: watch.Added, object: s, version: now + 1})
	}
	begun := time.Now()
	e.send(late...)
	e.listed(begun)
	e.Reach(rig.Soon, "pod1 tcp vip4:80", "refused")

	// The server goes on.
	e.apply(e.slices("web", "pod1")...)
	e.Reach(rig.Patience, "pod2 tcp vip2:80", "pod1:8080")
	e.AwaitNoProblem(inStep)

	// What does not match the selectors any more is gone for a watch. The server gives it the version at which it went.
	listed := time.Now()
	for _, s := range e.slices("web", "pod1") {
		s.GetLabels()[corev1.IsHeadlessService] = ""
		e.apply(s)
	}
	e.Reach(rig.Soon, "pod2 tcp vip2:80", "refused")
	e.apply(e.slices("web", "pod3")...)
	e.Reach(rig.Soon, "pod2 tcp vip2:80", "pod3:8080")
	for _, r := range e.between.Requests(listed) {
		if !r.Watch() {
			e.T.Errorf("the agent asked for %s?%s without need", r.Path, r.Query.Encode())
		}
	}
}

// testMoves moves an endpoint from slice to slice. As long as it comes before it goes, it never vanishes.
func testMoves(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	other := func(host ...string) (all []*discoveryv1.EndpointSlice) {
		for _, s := range e.slices("web", host...) {
			s.SetName("other-" + s.GetName())
			all = append(all, s.(*discoveryv1.EndpointSlice))
		}
		return all
	}
	transactions := e.monitor()
	clients := e.Connect(3*time.Millisecond, "pod1 tcp vip2:80")
	for range 10 {
		for i, s := range other("pod2") {
			e.send(event{kind: watch.Modified, object: s})
			time.Sleep(20 * time.Millisecond)
			e.send(event{kind: watch.Modified, object: e.slices("web")[i]})
			time.Sleep(20 * time.Millisecond)
			e.send(event{kind: watch.Modified, object: e.slices("web", "pod2")[i]}, event{kind: watch.Modified, object: other()[i]})
			time.Sleep(20 * time.Millisecond)
			e.send(event{kind: watch.Added, object: s})
			e.send(event{kind: watch.Deleted, object: e.slices("web", "pod2")[i]})
			time.Sleep(20 * time.Millisecond)
			e.send(event{kind: watch.Added, object: e.slices("web", "pod2")[i]}, event{kind: watch.Deleted, object: s})
			time.Sleep(20 * time.Millisecond)
		}
	}
	e.Await(rig.Patience, "all written", rig.Settled)
	for _, f := range proxy.Families {
		for line := range strings.Lines(transactions.String()) {
			if strings.HasPrefix(line, "delete element "+rig.NFTFamily[f]) && strings.Contains(line, " endpoints ") {
				e.T.Errorf("an endpoint went while it moved: %s", line)
			}
		}
	}
	// It goes first: what is left in the end is the same.
	for i := range proxy.Families {
		e.send(event{kind: watch.Modified, object: e.slices("web")[i]}, event{kind: watch.Added, object: other("pod2")[i]})
	}
	time.Sleep(200 * time.Millisecond)
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "pod2:8080")
	e.nothingToMend()
	rig.EndUndisturbed(e.T, clients, "pod2:8080", "refused")
}

// versions is a version that is not below that of any object.
func (e *badEnv) versions() int64 {
	e.T.Helper()
	text, err := e.cluster.Do(e.T.Context(), "GET", cluster.ServicesPath+"?limit=1", nil)
	e.must(err)
	_, text, _ = strings.Cut(text, `"resourceVersion":"`)
	digits, _, _ := strings.Cut(text, `"`)
	n, err := strconv.ParseInt(digits, 10, 64)
	e.must(err)
	return n
}

// relist ends the watches in which made-up events were sent. Their versions are unknown to the server, so that everything is
// read anew.
func (e *badEnv) relist() {
	e.T.Helper()
	begun := time.Now()
	e.between.EndWatches()
	e.listed(begun)
}

// listed waits until something was listed since a time, and everything is watched.
func (e *badEnv) listed(since time.Time) {
	e.T.Helper()
	e.Eventually(rig.Patience, "a list", func() bool {
		return slices.ContainsFunc(e.between.Requests(since), func(r cluster.Request) bool { return !r.Watch() && !r.Query.Has("limit") })
	})
	e.followed()
}

// followed waits until everything is watched.
func (e *badEnv) followed() {
	e.T.Helper()
	e.Eventually(rig.Patience, "watches of all kinds", func() bool { return e.between.Watches() == len(source.Kinds) })
}
