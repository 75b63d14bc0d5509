package e2e

import (
	"os"
	"path/filepath"
	"time"

	"sluice/agent/status"
	"sluice/test/rig"
)

const (
	// modem is a slow line, in bytes a second: 56 kbit/s.
	modem = 7000
	// farAway is how long each answer is on its way.
	farAway = 5 * time.Second
	// vanished is how long it takes until a connection counts as lost on which nothing comes, not even answers to HTTP/2's pings: they are
	// sent after 30 s, and are waited for 15 s (client-go).
	vanished = 45 * time.Second
)

// testSlow has a line of 56 kbit/s, one with 5 s of delay, and one that lets one byte a second through, later and at the start, with and
// without a cache.
func testSlow(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.apply(e.service("new", "vip3"))
	pods := []string{"pod3", "pod1"}
	for i, line := range []struct {
		what           string
		bytesPerSecond int
		delay          time.Duration
	}{{"56 kbit/s", modem, 0}, {"5 s late", 0, farAway}} {
		e.between.Line(line.bytesPerSecond, line.delay, false)
		for _, cached := range []bool{false, true} {
			if !cached {
				e.must(os.RemoveAll(filepath.Join(e.Dir, "objects.db")))
			}
			begun := time.Now()
			if cached {
				e.startServing()
				e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
			} else {
				e.Start()
			}
			s := e.Await(inStep, line.what+": all objects", rig.Settled)
			e.T.Logf("%s, with a cache %t: in step after %v", line.what, cached, time.Since(begun).Round(10*time.Millisecond))
			e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
			if len(s.Problems) > 0 {
				e.T.Errorf("%s: %+v", line.what, s.Problems)
			}
			if !cached {
				e.awaitCached()
				e.Stop()
			}
		}
		changed := time.Now()
		e.apply(e.slices("new", pods[i])...)
		e.Reach(2*farAway+rig.Soon, "pod2 tcp vip3:80", pods[i]+":8080")
		e.T.Logf("%s: a change after %v", line.what, time.Since(changed).Round(10*time.Millisecond))
		if i == 0 {
			e.awaitCached()
			e.Stop()
		}
	}

	// A line on which not even TLS begins.
	e.awaitCached()
	e.Stop()
	e.between.Line(1, 0, false)
	e.startServing()
	e.AwaitProblem(inStep, "cannot be reached", "TLS handshake timeout")
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	e.apply(e.slices("new", "pod3")...)
	e.between.Line(0, 0, false)
	e.Reach(inStep, "pod2 tcp vip3:80", "pod3:8080")
	e.AwaitNoProblem(inStep)
}

// testStalled lets the connection be open and silent: while someone acknowledges what is sent, and while nobody does.
func testStalled(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.apply(e.service("new", "vip3"))
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	e.between.Line(0, 0, true)
	cpu, begun := e.CPU(), time.Now()
	e.apply(e.slices("new", "pod3")...)
	e.AwaitProblem(vanished+inStep, "cannot be reached")
	e.T.Logf("stalled: told after %v", time.Since(begun).Round(time.Second))
	if used := e.CPU() - cpu; used > time.Since(begun)/5 {
		e.T.Errorf("while nothing came the agent used %v of CPU in %v", used, time.Since(begun))
	}
	if s, err := e.Status(); err != nil || !s.Healthy {
		e.T.Errorf("not healthy while only the server is silent: %+v, %v", s, err)
	}
	e.between.Line(0, 0, false)
	e.Reach(inStep, "pod2 tcp vip3:80", "pod3:8080")

	e.followed()
	begun = time.Now()
	e.must(e.link.Forget(e.T.Context()))
	e.apply(e.slices("new", "pod1")...)
	e.Reach(vanished+inStep, "pod2 tcp vip3:80", "pod1:8080")
	e.T.Logf("the peer vanished: in step after %v", time.Since(begun).Round(time.Second))
	e.Await(3*time.Minute, "no problems", func(s status.Status) bool { return len(s.Problems) == 0 })
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}
