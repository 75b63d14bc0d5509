package e2e

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/test/cluster"
)

// TestBadServer puts a proxy between the agent and the server that does what a bad network, proxy or server can do.
func TestBadServer(t *testing.T) {
	c := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(*badEnv)
	}{
		{"Services that change all", testChangedServices},
		{"flood", testFlood},
		{"order", testOrder},
		{"moves", testMoves},
		{"absurd objects", testAbsurd},
		{"answers", testAnswers},
		{"closed watches", testClosedWatches},
		{"trust", testTrust},
		{"load", testLoad},
		{"slow", testSlow},
		{"stalled", testStalled},
		{"large objects", testLargeObjects},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newBadEnv(t, c)) })
	}
}

// badEnv is an env whose agent reaches the server through a Between.
type badEnv struct {
	*env
	between *cluster.Between
	// version is what the events of send begin from.
	version atomic.Int64
}

func newBadEnv(t *testing.T, c *cluster.Cluster) *badEnv {
	t.Helper()
	e := &badEnv{env: newEnv(t, c)}
	var err error
	e.between, err = c.NewBetween()
	e.must(err)
	t.Cleanup(func() { _ = e.between.Close() })
	e.writeKubeconfig(e.between.Kubeconfig(c.TokenKubeconfig(cluster.ProxyToken)))
	return e
}

// event is what a server would send of an object that it does not have.
type event struct {
	kind   watch.EventType
	object cluster.Object
	// version is the object's; 0 is the next one.
	version int64
}

// send puts events into the watches of a kind in one go, with the versions that come next.
func (e *badEnv) send(events ...event) {
	e.T.Helper()
	var frames []byte
	for _, ev := range events {
		frames = append(frames, e.encode(ev)...)
	}
	e.sendFrames(pathOf(events[0].object), frames)
}

func (e *badEnv) sendFrames(path string, frames []byte) {
	e.T.Helper()
	if n, err := e.between.Send(path, frames); err != nil || n != 1 {
		e.T.Fatalf("events went into %d watches: %v", n, err)
	}
}

// encode gives the event its version. The next ones begin far above the server's own.
func (e *badEnv) encode(ev event) []byte {
	if ev.object.GetNamespace() == "" {
		ev.object.SetNamespace("default")
	}
	ev.object.SetUID("made-up")
	if ev.version == 0 {
		ev.version = 1_000_000 + e.version.Add(1)
	}
	ev.object.SetResourceVersion(strconv.FormatInt(ev.version, 10))
	return cluster.Event(ev.kind, ev.object)
}

func pathOf(obj cluster.Object) string {
	switch obj.(type) {
	case *corev1.Service:
		return cluster.ServicesPath
	case *discoveryv1.EndpointSlice:
		return cluster.SlicesPath
	}
	panic(fmt.Sprintf("no path of a %T", obj))
}
