package rig

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

// Stream is a client that makes one new connection after the other.
type Stream struct {
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

// ClientPatience is how long a client waits until a connection counts as failed.
const ClientPatience = 5 * time.Second

// Connect starts clients that connect every few milliseconds, one for each probe and family.
func (r *Rig) Connect(every time.Duration, texts ...string) []*Stream {
	r.T.Helper()
	return r.ConnectFor(ClientPatience, every, texts...)
}

// ConnectFor does so with clients that give a connection up after a time of their own.
func (r *Rig) ConnectFor(timeout, every time.Duration, texts ...string) (all []*Stream) {
	r.T.Helper()
	for _, text := range texts {
		for _, f := range proxy.Families {
			probe := r.Probe(f, text)
			probe.Timeout = timeout
			s := &Stream{text: fmt.Sprintf("%v: %s", f, text), stop: make(chan struct{})}
			ctx := r.T.Context()
			s.group.Go(func() { s.run(ctx, probe, every) })
			all = append(all, s)
		}
	}
	return all
}

func (s *Stream) run(ctx context.Context, probe lab.Probe, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticks.C:
		}
		begun := time.Now()
		result := Met(probe.Send(ctx))
		s.met = append(s.met, meeting{begun, time.Now(), result})
	}
}

// end stops the client and returns all that it met.
func (s *Stream) end() []meeting {
	close(s.stop)
	s.group.Wait()
	return s.met
}

// EndUndisturbed ends clients, none of which may have met anything but the endpoints.
func EndUndisturbed(t *testing.T, all []*Stream, endpoints ...string) {
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

// EndInterrupted ends clients that may have been cut off, but no longer than the given time at once. It tells
// the longest time between two connections to endpoints with others between them.
func EndInterrupted(t *testing.T, all []*Stream, longest time.Duration, endpoints ...string) (gap time.Duration) {
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
