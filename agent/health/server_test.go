package health

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/agent/httpserver"
	"sluice/proxy"
)

func startServe(t *testing.T, n *node, at string, tracker *Tracker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx, netip.MustParseAddrPort(at), tracker, n.options())
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func TestHealthz(t *testing.T) {
	n := newNode(t)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	tracker := NewTracker(time.Minute, clock.Now)
	startServe(t, n, "0.0.0.0:10256", tracker)
	eventually(t, "the server", func() bool { return strings.Contains(n.log.Take(), "health is served") })

	type answer struct{ path, status, body string }
	for _, step := range []struct {
		name    string
		do      func()
		answers []answer
	}{
		{"nothing known yet", func() {}, []answer{
			{"/healthz", "200 OK", `{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T00:00:00Z","nodeEligible":true,"healthy":true}`},
			{"/livez", "200 OK", `{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T00:00:00Z","healthy":true}`},
		}},
		{"both families written", func() {
			tracker.Queued(proxy.IPv4)
			tracker.Queued(proxy.IPv6)
			tracker.Updated(proxy.IPv4)
			tracker.Updated(proxy.IPv6)
			clock.Step(time.Hour)
		}, []answer{
			{"/healthz", "200 OK", `{"lastUpdated":"2026-01-01T01:00:00Z","currentTime":"2026-01-01T01:00:00Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true}}}`},
		}},
		{"a change waits", func() {
			tracker.Queued(proxy.IPv6)
			clock.Step(time.Minute - 1)
			tracker.Queued(proxy.IPv6) // the oldest counts
		}, []answer{
			{"/livez", "200 OK", `{"lastUpdated":"2026-01-01T01:00:59.999999999Z","currentTime":"2026-01-01T01:00:59.999999999Z","healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true}}}`},
		}},
		{"and waits too long", func() { clock.Step(1) }, []answer{
			{"/healthz", "503 Service Unavailable", `{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T01:01:00Z","nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":false}}}`},
			{"/livez", "503 Service Unavailable", `{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T01:01:00Z","healthy":false,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":false}}}`},
		}},
		{"it is written, and the node is to be deleted", func() {
			tracker.Updated(proxy.IPv6)
			tracker.SetNodeEligible(false)
			clock.Step(time.Hour)
		}, []answer{
			{"/healthz", "503 Service Unavailable", `{"lastUpdated":"2026-01-01T01:01:00Z","currentTime":"2026-01-01T02:01:00Z","nodeEligible":false,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-01T01:01:00Z","healthy":true}}}`},
			{"/livez", "200 OK", `{"lastUpdated":"2026-01-01T02:01:00Z","currentTime":"2026-01-01T02:01:00Z","healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-01T01:01:00Z","healthy":true}}}`},
		}},
	} {
		step.do()
		for _, want := range step.answers {
			status, header, body := n.get(t, "http://192.168.1.5:10256"+want.path)
			if diff := cmp.Diff(want, answer{want.path, status, body}, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
			if header.Get("Content-Type") != "application/json" || header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: headers %v", step.name, header)
			}
		}
	}
	if diff := cmp.Diff(Probes{Healthz: Answers{OK: 2, Unavailable: 2}, Livez: Answers{OK: 3, Unavailable: 1}}, tracker.Probes()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if status, _, _ := n.get(t, "http://127.0.0.1:10256/"); status != "404 Not Found" {
		t.Errorf("/ = %s, want 404", status)
	}
}

func TestTrackerNeverWritten(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	tracker := NewTracker(time.Minute, clock.Now)
	tracker.Queued(proxy.IPv4)
	if !tracker.Healthy() {
		t.Error("unhealthy at once, want healthy")
	}
	clock.Step(time.Minute)
	if tracker.Healthy() {
		t.Error("healthy although the first rules are late")
	}
}

// A port that is taken stops nothing: it is had once it is free.
func TestServeRetries(t *testing.T) {
	n := newNode(t)
	taken, err := n.Listen(t.Context(), "tcp", "127.0.0.1:10256")
	if err != nil {
		t.Fatal(err)
	}
	startServe(t, n, "127.0.0.1:10256", NewTracker(time.Minute, nil))
	time.Sleep(10 * 20 * time.Millisecond)
	log := n.log.Take()
	if got := strings.Count(log, "health is not served"); got != 1 || !strings.Contains(log, "another process has this port") {
		t.Errorf("logged %d times, want once, with the remedy:\n%s", got, log)
	}
	taken.Close()
	eventually(t, "an answer", func() bool {
		status, _, _ := n.get(t, "http://127.0.0.1:10256/healthz")
		return status == "200 OK"
	})
}

// A client that says nothing is not waited for, and does not keep others from an answer.
func TestServeSilentClient(t *testing.T) {
	n := newNode(t)
	startServe(t, n, "127.0.0.1:10256", NewTracker(time.Minute, nil))
	eventually(t, "the server", func() bool { return strings.Contains(n.log.Take(), "health is served") })
	silent, err := n.Dial(t.Context(), "tcp", "127.0.0.1:10256")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if status, _, _ := n.get(t, "http://127.0.0.1:10256/healthz"); status != "200 OK" {
		t.Errorf("/healthz = %s beside a silent client, want 200", status)
	}
	silent.SetReadDeadline(time.Now().Add(2 * httpserver.ReadTimeout))
	start := time.Now()
	_, err = silent.Read(make([]byte, 1))
	if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
		t.Errorf("a silent connection is still open after %v, want it closed after %v", time.Since(start), httpserver.ReadTimeout)
	}
}

func TestNodeEligible(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"unknown":        {nil, true},
		"plain":          {&corev1.Node{}, true},
		"deleted":        {&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, false},
		"to be deleted":  {&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a"}, {Key: "ToBeDeletedByClusterAutoscaler"}}}}, false},
		"another taint":  {&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler"}}}}, true},
		"unschedulable ": {&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, true},
	} {
		if got := NodeEligible(tc.node); got != tc.want {
			t.Errorf("%s: NodeEligible = %t, want %t", name, got, tc.want)
		}
	}
}
