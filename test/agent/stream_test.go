package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// stream is a client that makes one new connection after the other.
type stream struct {
	text  string
	stop  chan struct{}
	group sync.WaitGroup
	met   []meeting
}

// meeting is what one connection met.
type meeting struct {
	begun, ended time.Time
	result       string
}

// clientPatience is how long a client waits until a connection counts as failed.
const clientPatience = 5 * time.Second

// connect starts clients that connect every few milliseconds, one for each probe and family.
func (c *cluster) connect(every time.Duration, texts ...string) []*stream {
	c.t.Helper()
	return c.connectFor(clientPatience, every, texts...)
}

// connectFor does so with clients that give a connection up after a time of their own.
func (c *cluster) connectFor(timeout, every time.Duration, texts ...string) (all []*stream) {
	c.t.Helper()
	for _, text := range texts {
		for _, f := range proxy.Families {
			probe := c.probe(f, text)
			probe.Timeout = timeout
			s := &stream{text: fmt.Sprintf("%v: %s", f, text), stop: make(chan struct{})}
			ctx := c.t.Context()
			s.group.Go(func() { s.run(ctx, probe, every) })
			all = append(all, s)
		}
	}
	return all
}

func (s *stream) run(ctx context.Context, probe lab.Probe, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticks.C:
		}
		begun := time.Now()
		result := met(probe.Send(ctx))
		s.met = append(s.met, meeting{begun, time.Now(), result})
	}
}

// end stops the client and returns all that it met.
func (s *stream) end() []meeting {
	close(s.stop)
	s.group.Wait()
	return s.met
}

// endUndisturbed ends clients, none of which may have met anything but the endpoints.
func endUndisturbed(t *testing.T, all []*stream, endpoints ...string) {
	t.Helper()
	connections, slowest := 0, time.Duration(0)
	for _, s := range all {
		list := s.end()
		connections += len(list)
		if len(list) == 0 {
			t.Errorf("%s: no connection was made", s.text)
		}
		var bad []string
		for _, m := range list {
			slowest = max(slowest, m.ended.Sub(m.begun))
			if !slices.Contains(endpoints, m.result) {
				bad = append(bad, fmt.Sprintf("%s at %s for %v", m.result, m.begun.Format("05.000"), m.ended.Sub(m.begun).Round(time.Millisecond)))
			}
		}
		if len(bad) > 0 {
			t.Errorf("%s: %d of %d connections went wrong: %s", s.text, len(bad), len(list), strings.Join(bad[:min(len(bad), 10)], "; "))
		}
	}
	t.Logf("%d connections, the slowest took %v", connections, slowest.Round(time.Millisecond))
}

// endInterrupted ends clients that may have been cut off, but no longer than the given time at once. It tells
// the longest time between two connections to endpoints with others between them.
func endInterrupted(t *testing.T, all []*stream, longest time.Duration, endpoints ...string) (gap time.Duration) {
	t.Helper()
	for _, s := range all {
		var last time.Time // of the last connection before those that went wrong
		wrong := false
		list := s.end()
		for _, m := range list {
			if !slices.Contains(endpoints, m.result) {
				wrong = true
				continue
			}
			if wrong && !last.IsZero() {
				gap = max(gap, m.ended.Sub(last))
			}
			last, wrong = m.begun, false
		}
		if wrong || len(list) == 0 {
			t.Errorf("%s: not connected at the end", s.text)
		}
	}
	if gap > longest {
		t.Errorf("clients were cut off for %v, longer than %v", gap, longest)
	}
	return gap
}
