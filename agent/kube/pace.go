package kube

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// Pauses between watches that do not last. The reflector itself would open the
// next one at once.
const (
	minPause = 250 * time.Millisecond
	maxPause = 5 * time.Second
	// A watch that lasted this long was a good one.
	lasting = 10 * time.Second
	// maxRetryAfter bounds what a server can ask for in the header Retry-After.
	maxRetryAfter = 5 * time.Minute
)

// pace says when the next request may go out. It belongs to one goroutine at a time.
type pace struct {
	next  time.Time
	pause time.Duration
}

// wait waits until the next request may go out.
func (p *pace) wait(ctx context.Context) error { return sleep(ctx, time.Until(p.next)) }

// notBefore puts the next request off.
func (p *pace) notBefore(d time.Duration) {
	if at := time.Now().Add(d); at.After(p.next) {
		p.next = at
	}
}

// watched notes how long a watch lasted.
func (p *pace) watched(d time.Duration) {
	if d >= lasting {
		p.pause = 0
		return
	}
	p.pause = min(max(2*p.pause, minPause), maxPause)
	p.notBefore(p.pause + rand.N(p.pause/2))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endingClock is the real clock, but waiting for After ends with ctx: the reflector's
// pauses after some errors do not look at its context.
type endingClock struct {
	clock.RealClock
	ctx context.Context
}

// After implements clock.Clock.
func (c endingClock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	go func() {
		_ = sleep(c.ctx, d)
		ch <- time.Now()
	}()
	return ch
}
