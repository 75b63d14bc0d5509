package e2e

import (
	"fmt"
	"time"

	"sluice/test/rig"
)

// testServer kills the server, changes what it knows while the agent cannot, and starts it again.
func testServer(e *env) {
	e.apply(e.service("web", "vip2", nodePort(30080)))
	e.apply(e.slices("web", "pod2", "far1")...)
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80", "outside tcp node:30080", "node udp vip2:80")
	for i, pod := range []string{"pod3", "far2", "pod2"} {
		e.must(e.cluster.KillServer())
		e.AwaitProblem(rig.Patience, "cannot be reached")
		if s, err := e.Status(); err != nil || !s.Healthy {
			e.T.Errorf("the agent is not healthy while only the server is gone: %+v, %v", s, err)
		}
		e.must(e.cluster.StartServer(e.T.Context()))
		ready := time.Now()
		e.apply(e.service("new", "vip3"))
		e.apply(e.slices("new", pod)...)
		e.Reach(soonInStep, "pod1 tcp vip3:80", pod+":8080")
		served := time.Since(ready).Round(time.Millisecond)
		e.AwaitNoProblem(inStep)
		e.T.Logf("in step %v after the server was ready, without a problem after %v", served, time.Since(ready).Round(time.Millisecond))
		if n := e.Logged("a problem with the API server began"); n != i+1 {
			e.T.Errorf("%d problems were logged in %d outages: a server that starts is none", n, i+1)
		}
	}

	e.must(e.link.Down(e.T.Context())) // the server answers us, and not the agent
	e.restartServer()
	e.apply(e.slices("new", "pod1")...)
	e.must(e.link.Up(e.T.Context()))
	up := time.Now()
	e.Reach(inStep, "pod2 tcp vip3:80", "pod1:8080") // the agent was not told that the connection ended
	e.T.Logf("in step %v after the link was up", time.Since(up).Round(time.Millisecond))
	rig.EndUndisturbed(e.T, clients, "pod2:8080", "far1:8080")
}

// testLink loses the network between the node and the server, first silently.
func testLink(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.apply(e.service("steady", "vip3"))
	e.apply(e.slices("steady", "pod1")...)
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod2 tcp vip3:80")
	before := e.Counters("vip3")
	pods := []string{"pod3", "far1"}
	for i, way := range []struct{ lose, mend func() error }{
		{func() error { return e.link.Cut(e.T.Context()) }, func() error { return e.link.Mend(e.T.Context()) }},
		{func() error { return e.link.Down(e.T.Context()) }, func() error { return e.link.Up(e.T.Context()) }},
	} {
		e.must(way.lose())
		e.apply(e.slices("web", pods[i])...)
		time.Sleep(time.Second)
		e.must(way.mend())
		e.Reach(inStep, "pod1 tcp vip2:80", pods[i]+":8080")
	}
	rig.EndUndisturbed(e.T, clients, "pod1:8080")
	e.countedOn(before, "vip3")
}

// testRestart restarts the agent, and kills it, while there is no server.
func testRestart(e *env) {
	e.apply(e.service("web", "vip2", nodePort(30080)))
	e.apply(e.slices("web", "pod2", "far1")...)
	e.Run()
	e.awaitCached()
	e.must(e.link.Down(e.T.Context()))
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80", "outside udp node:30080")
	before := e.Counters("vip2")
	e.Stop()
	e.startServing()
	e.End(9)
	e.startServing()
	e.restartServer()
	e.apply(e.service("new", "vip3"))
	e.apply(e.slices("new", "pod3")...)
	e.must(e.link.Up(e.T.Context()))
	e.Reach(inStep, "pod1 tcp vip3:80", "pod3:8080")
	e.Await(inStep, "all objects are known", rig.Settled)
	rig.EndUndisturbed(e.T, clients, "pod2:8080", "far1:8080")
	e.countedOn(before, "vip2")
}

// testOlderEtcd gives the cluster back the data of an earlier time, as a restored backup does.
func testOlderEtcd(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.restartEtcd(func() error { return e.cluster.SaveEtcd("older") })
	e.Run()
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	e.apply(e.service("later", "vip3"))
	for i := range 50 { // so that the versions are far apart
		e.apply(e.slices("later", fmt.Sprint("pod", 1+i%3))...)
	}
	e.apply(e.slices("later", "far1")...)
	e.apply(e.slices("web", "far2")...)
	e.Reach(rig.Soon, "pod1 tcp vip3:80", "far1:8080")
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "far2:8080")
	e.awaitCached()

	e.restartEtcd(func() error { return e.cluster.RestoreEtcd("older") })
	e.Reach(inStep, "pod1 tcp vip2:80", "pod2:8080")
	e.Reach(inStep, "pod1 tcp vip3:80", "silence|unreachable|refused")
	e.apply(e.service("other", "vip4"))
	e.apply(e.slices("other", "pod3")...)
	e.Reach(inStep, "pod1 tcp vip4:80", "pod3:8080")
	e.Stop()
	e.Run()
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	e.Reach(0, "pod1 tcp vip4:80", "pod3:8080")
}

// countedOn checks that the elements of an address that did not change were not written again: their
// counters would have begun anew.
func (e *env) countedOn(before map[string]int, vip string) {
	e.T.Helper()
	after := e.Counters(vip)
	if len(before) == 0 {
		e.T.Fatalf("%s has no counters", vip)
	}
	grown := false
	for name, n := range before {
		if after[name] < n {
			e.T.Errorf("the counter of %s %s went from %d to %d", vip, name, n, after[name])
		}
		grown = grown || after[name] > n
	}
	if !grown {
		e.T.Errorf("no counter of %s counted on: %v, then %v", vip, before, after)
	}
}
