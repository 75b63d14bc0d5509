package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// gateSink accepts changes only when its gate is open.
type gateSink struct {
	*sink
	gate chan struct{}
	open sync.Once
}

func newGateSink(s *sink) *gateSink { return &gateSink{sink: s, gate: make(chan struct{})} }

func (s *gateSink) Open() { s.open.Do(func() { close(s.gate) }) }

func (s *gateSink) Apply(ctx context.Context, changes []source.Change) error {
	select {
	case <-s.gate:
		return s.sink.Apply(ctx, changes)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func withPorts(s *corev1.Service, n int) *corev1.Service {
	s.Spec.Ports = nil
	for i := range n {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: "TCP", Port: int32(i%65535 + 1)})
	}
	return s
}

// However the wait of a change ends, the room that it took is free again.
func TestOutboxGivesRoomBack(t *testing.T) {
	refused := errors.New("not wanted")
	tests := []struct {
		name   string
		object metav1.Object
		apply  error // of the sink; nil: it waits for its gate
	}{
		{"waits for a place in the queue", service("small", "10.43.0.1", nil), nil},
		{"waits for room", withPorts(service("large", "10.43.0.1", nil), 5_000), nil},
		{"needs all the room", withPorts(service("huge", "10.43.0.1", nil), 50_000), nil},
		{"deletions", nil, nil},
		{"the sink does not accept it", service("small", "10.43.0.1", nil), refused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newGateSink(newSink())
				o := newOutbox(s, newProblems(slog.New(slog.DiscardHandler)), time.Hour)
				if tt.apply != nil {
					o.sink = refusing{s, tt.apply}
				}
				ran := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { ran <- o.run(ctx) }()
				// Each of these is what follows one kubeconfig. It puts until it waits, and ends so.
				for range 20 {
					ctx, cancel := context.WithCancel(t.Context())
					var putting sync.WaitGroup
					for range 4 {
						putting.Go(func() {
							for tt.apply == nil && o.put(ctx, source.Change{Kind: source.Service, Name: "x", Object: tt.object}) == nil {
							}
						})
					}
					synctest.Wait()
					cancel()
					putting.Wait()
					if o.put(ctx, source.Change{Kind: source.Service, Name: "x", Object: tt.object}) == nil {
						t.Fatal("a change is taken of a context that has ended")
					}
				}
				if tt.apply != nil {
					_ = o.put(ctx, source.Change{Kind: source.Service, Name: "x", Object: tt.object})
					if err := <-ran; !errors.Is(err, tt.apply) {
						t.Errorf("run ends with %v, want the error of the sink", err)
					}
				}
				s.Open()
				synctest.Wait()
				if !o.room.TryAcquire(maxQueued) {
					t.Error("nothing waits any more, and some of the room is taken")
				}
				cancel()
			})
		})
	}
}

type refusing struct {
	source.Sink
	err error
}

func (s refusing) Apply(context.Context, []source.Change) error { return s.err }

// A kubeconfig that is rewritten while the sink is busy in the middle of a list: what was to be handed over
// and was not comes with the list of the next one.
func TestRewrittenWhileBusy(t *testing.T) {
	t.Parallel()
	for _, ports := range []int{1, 13_000} {
		t.Run(fmt.Sprint(ports, " ports"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			const small = 400
			for i := range small {
				r.api.put(service(fmt.Sprintf("s%03d", i), fmt.Sprintf("10.43.%d.%d", i/200, i%200+1), nil))
			}
			r.api.put(withPorts(service("zz-last", "10.43.9.9", nil), ports), slice("web-1", ofWeb), cidr("kubernetes"), node("pi"))
			r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
			busy := newGateSink(r.sink)
			r.startInto(busy, defaultLimits)
			for n := range 3 {
				r.eventually("the list is asked for", func() bool { return r.api.asked(servicesPath, "!watch") == n+1 })
				time.Sleep(500 * time.Millisecond) // the list fills the queue
				if n < 2 {
					r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
				}
			}
			busy.Open()
			r.eventually("synced", r.sink.isSynced)
			if got := len(r.sink.names()); got != small+4 {
				t.Errorf("%d objects when everything is said to be known, want %d", got, small+4)
			}
		})
	}
}

// A sink that takes nothing is a problem, until it does.
func TestNothingMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	l := defaultLimits
	l.handOver = 200 * time.Millisecond
	busy := newGateSink(r.sink)
	r.startInto(busy, l)
	r.eventually("the problem", func() bool {
		return strings.Contains(r.sink.reasons(), "agent EndpointSlice, Node, Service, ServiceCIDR: what the API server sent has waited for 200ms and is not taken over")
	})
	busy.Open()
	r.eventually("synced", r.sink.isSynced)
	r.eventually("the end of the problem", func() bool { return r.sink.reasons() == "" })
	r.has(someNames...)
}

// A source whose sink accepts no more ends, rather than to follow a server for nothing.
func TestSinkRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	refused := errors.New("not wanted")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := New(Options{Kubeconfig: r.kubeconfig, NodeName: "pi"}).Run(ctx, refusing{r.sink, refused})
	if !errors.Is(err, refused) {
		t.Errorf("Run ends with %v, want the error of the sink", err)
	}
}

// What was read of one server does not make the objects of the next one known.
func TestSyncedOfOneServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	open := make(chan struct{})
	without := func(path string) {
		r.api.misbehave(about(path, func(w http.ResponseWriter, req *http.Request) {
			select {
			case <-open:
				r.api.status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "as the test wants it")
			case <-req.Context().Done():
			}
		}))
	}
	without(slicesPath)
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	r.start()
	r.eventually("Services are read", func() bool { return r.sink.replacements(source.Service) == 1 })
	without(servicesPath)
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	r.eventually("EndpointSlices are read", func() bool { return r.sink.replacements(source.EndpointSlice) == 1 })
	time.Sleep(500 * time.Millisecond)
	if r.sink.isSynced() {
		t.Error("Services of the second server were not read, and all is said to be known")
	}
	r.api.misbehave(nil)
	close(open)
	r.eventually("synced", r.sink.isSynced)
	r.has(someNames...)
}
