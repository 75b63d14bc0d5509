package kube

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// Pauses after requests that failed and watches that did not last. They are short, as
// an edge node that has its server back should not wait long, and they differ by chance, so that
// nodes do not come all at once.
const (
	minPause = 250 * time.Millisecond
	maxPause = 5 * time.Second
	// A watch that lasted this long was a good one: pauses begin anew.
	lasting = 10 * time.Second
	// maxRetryAfter bounds what a server can ask for in the header Retry-After.
	maxRetryAfter = 5 * time.Minute
)

// pace says when the next request may go out. It belongs to one goroutine at a time.
type pace struct {
	next  time.Time
	pause time.Duration
	away  bool // what failed last did not reach the server
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
		p.notBefore(rand.N(minPause))
		return
	}
	p.grow()
}

// failed notes that a request failed, and whether it reached the server at all. When one
// does so again, the server starts: soon it answers well, and pauses begin anew.
func (p *pace) failed(away bool) {
	if p.away && !away {
		p.pause = 0
	}
	p.away = away
	p.grow()
}

// grow makes the pause longer. What is waited is half of it at least.
func (p *pace) grow() {
	p.pause = min(max(2*p.pause, minPause), maxPause)
	p.notBefore(p.pause - rand.N(p.pause/2))
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
