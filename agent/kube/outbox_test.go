package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// A sink that is slow gets what waits in batches, and a flush sees all of it accepted.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowSink{sink: newSink(), takes: time.Millisecond}
		o := newOutbox(s, newProblems(slog.New(slog.DiscardHandler)), time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = o.run(ctx) }()
		const n = 1000
		begun := time.Now()
		for i := range n {
			name := string(rune('a' + i%26))
			if err := o.put(ctx, source.Change{Kind: source.Service, Name: name, Object: &metav1.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.flush(ctx, source.Service); err != nil {
			t.Fatal(err)
		}
		sum, most := 0, 0
		for _, b := range s.batches {
			sum, most = sum+b, max(most, b)
		}
		if sum != n || most != batchSize {
			t.Errorf("%d changes in batches of up to %d, want %d and %d", sum, most, n, batchSize)
		}
		if took := time.Since(begun); took > 13*time.Millisecond {
			t.Errorf("a sink that takes 1 ms a batch got %d changes in %v", n, took)
		}
		cancel()
		if o.put(ctx, source.Change{}) == nil || o.flush(ctx, source.Service) == nil {
			t.Error("an ended outbox takes changes")
		}
	})
}

// While the sink is busy, large objects do not pile up, however few they are. None is too large to pass.
func TestOutboxBytes(t *testing.T) {
	big := func(ports int) *corev1.Service {
		s := service("big", "10.43.0.10", nil)
		s.Spec.Ports = nil
		for i := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: "TCP", Port: int32(i + 1)})
		}
		return s
	}
	tests := []struct {
		name   string
		object metav1.Object
		waits  int64 // of 1000, in the queue and in the sink
	}{
		{"small ones", big(1), 200},
		{"100 ports", big(100), 60},
		{"50,000 ports", big(50_000), 1},
		{"deletions", nil, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowSink{sink: newSink(), takes: time.Hour}
				o := newOutbox(s, newProblems(slog.New(slog.DiscardHandler)), time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = o.run(ctx) }()
				var put atomic.Int64
				go func() {
					for range 1000 {
						if o.put(ctx, source.Change{Kind: source.Service, Name: "big", Object: tt.object}) != nil {
							return
						}
						put.Add(1)
					}
					_ = o.flush(ctx, source.Service)
				}()
				synctest.Wait()
				if put := put.Load(); put < 1 || put > tt.waits+1 {
					t.Errorf("%d objects wait, want at most %d", put, tt.waits)
				}
				time.Sleep(1001 * time.Hour)
				if put := put.Load(); put != 1000 {
					t.Errorf("%d objects were taken in the end, want 1000", put)
				}
			})
		})
	}
}

// slowSink needs some time for each batch.
type slowSink struct {
	*sink
	takes time.Duration
}

func (s *slowSink) Apply(ctx context.Context, changes []source.Change) error {
	time.Sleep(s.takes)
	return s.sink.Apply(ctx, changes)
}
