package page

import (
	"context"
	"sync"
	"time"

	"sluice/agent/status"
)

const (
	// firstSample is how long the first visitor waits for rates.
	firstSample = time.Second
	// maxSample is after how long rates would say nothing of the present.
	maxSample = time.Minute
)

// samples are the last two readings of the counters. They are kept for as long as there are visitors.
type samples struct {
	first time.Duration // how long the first visitor waits

	mu            sync.Mutex
	before, after status.Counts
	idle          *time.Timer
}

// read takes a reading and compares it with the one before. If there is none it takes two.
func (s *samples) read(ctx context.Context, read func(context.Context) (status.Counts, error)) (c status.Counts, rates status.Rates, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, err = read(ctx); err != nil {
		return c, rates, err
	}
	if age := c.At.Sub(s.after.At); age > maxSample && c.NotCounted == "" {
		s.before = c
		select {
		case <-time.After(s.first):
		case <-ctx.Done():
			return c, rates, ctx.Err()
		}
		if c, err = read(ctx); err != nil {
			return c, rates, err
		}
	} else if age > 0 {
		s.before = s.after
	}
	s.after = c
	if s.idle == nil {
		s.idle = time.AfterFunc(maxSample, s.forget)
	} else {
		s.idle.Reset(maxSample)
	}
	return c, status.NewRates(&s.before, &s.after, ""), nil
}

func (s *samples) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = status.Counts{}, status.Counts{}
}
