package e2e

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/status"
	"sluice/test/cluster"
	"sluice/test/rig"
)

const (
	// floodTime is how long events are pushed, as quick as the connection takes them.
	floodTime = 8 * time.Second
	// floodMemory is how much more memory of its own the agent may take meanwhile: what waits is bounded, to a megabyte behind the
	// connection's buffers.
	floodMemory = 24 << 20
	// floodAnswer is how long the status may take meanwhile.
	floodAnswer = 2 * time.Second
	// floodBatch is how many events are written in one go.
	floodBatch = 500
)

// testFlood pushes events as quick as the connection takes them: of many objects, of one alone, and bookmarks.
func testFlood(e *badEnv) {
	c := &churn{env: e.env, endpoints: make([][]string, steadyServices), there: make([]bool, passingServices)}
	c.begin()
	defer c.end()
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	e.Await(rig.Patience, "all Services", func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Services >= steadyServices+2 })
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")

	many := make([][]byte, 0, 2*steadyServices)
	for round := range 2 {
		for i := range c.endpoints {
			c.endpoints[i] = c.endpoints[i][:0]
			for n := range steadyEndpoints {
				c.endpoints[i] = append(c.endpoints[i], fmt.Sprintf("10.244.%d.%d", 100+i, 1+n+20*round))
			}
			many = append(many, e.template(event{kind: watch.Modified, object: c.slice(i)}))
		}
	}
	e.flood("many objects", cluster.SlicesPath, many)
	c.checkRules()
	c.endpoints[0] = []string{"10.244.99.1"}
	one := [][]byte{many[0], e.template(event{kind: watch.Modified, object: c.slice(0)})}
	e.flood("one object", cluster.SlicesPath, one)
	c.checkRules()
	e.flood("bookmarks", cluster.SlicesPath, [][]byte{e.template(event{kind: watch.Bookmark, object: c.slice(0)})})
	c.checkRules()
	e.nothingToMend()
	e.AwaitNoProblem(inStep)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}

// placeholder stands in templates for a version, and has as many digits.
const placeholder = "8888888888"

// template is an event whose version is filled in later.
func (e *badEnv) template(ev event) []byte {
	e.T.Helper()
	e.encode(ev)
	ev.object.SetResourceVersion(placeholder)
	frame := cluster.Event(ev.kind, ev.object)
	if bytes.Count(frame, []byte(placeholder)) != 1 {
		e.T.Fatal("an event does not have its version once")
	}
	return frame
}

// flood sends the events again and again, up to the last of them.
func (e *badEnv) flood(what, path string, templates [][]byte) {
	e.T.Helper()
	at := make([]int, len(templates))
	for i, t := range templates {
		at[i] = bytes.Index(t, []byte(placeholder))
	}
	begun, cpu, memory := time.Now(), e.CPU(), e.Memory("RssAnon")
	stop, watched := make(chan struct{}), make(chan struct{})
	var most int64
	var slowest time.Duration
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			asked := time.Now()
			if _, err := e.Status(); err != nil {
				e.T.Errorf("%s: status: %v", what, err)
			}
			slowest = max(slowest, time.Since(asked))
			most = max(most, e.Memory("RssAnon"))
		}
	}()
	events := 0
	var batch, version []byte
	for time.Since(begun) < floodTime || events%len(templates) != 0 {
		batch = batch[:0]
		for range floodBatch {
			i := events % len(templates)
			version = strconv.AppendInt(version[:0], 1_000_000_000+e.version.Add(1), 10)
			batch = append(batch, templates[i]...)
			copy(batch[len(batch)-len(templates[i])+at[i]:], version)
			events++
		}
		e.sendFrames(path, batch)
	}
	sent := time.Since(begun)
	close(stop)
	<-watched
	took := e.CPU() - cpu
	e.T.Logf("%s: %d events in %v, %.0f a second; CPU %.2f of one core; anonymous memory %.1f MB before, %.1f at most, %.1f after; status within %v",
		what, events, sent.Round(time.Millisecond), float64(events)/sent.Seconds(), took.Seconds()/sent.Seconds(),
		float64(memory)/1e6, float64(most)/1e6, float64(e.Memory("RssAnon"))/1e6, slowest.Round(time.Millisecond))
	if most > memory+floodMemory {
		e.T.Errorf("%s: the memory grew by %d KiB", what, (most-memory)>>10)
	}
	if slowest > floodAnswer {
		e.T.Errorf("%s: the status took %v", what, slowest)
	}
}
