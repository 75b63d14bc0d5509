package kube

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/source"
	"sluice/test/testlog"
)

// One problem that several meet is logged once; one that comes and goes lasts longer each time.
func TestProblems(t *testing.T) {
	away := fault{"unreachable", "server", "", "connection refused"}
	broken := fault{"status 500", "server", "", "internal error"}
	tests := []struct {
		name string
		do   func(p *problems)
		want []string // the log
	}{
		{"met by two", func(p *problems) {
			p.failed("services list", away)
			p.failed("nodes list", away)
			p.works("services list")
			time.Sleep(time.Minute)
			p.failed("nodes list", away)
			p.works("nodes list")
		}, []string{"WARN began: connection refused", "INFO ended: connection refused"}},
		{"a gap shorter than the settling time", func(p *problems) {
			p.failed("x", away)
			p.works("x")
			time.Sleep(minSettle - time.Millisecond)
			p.failed("x", away)
			p.works("x")
		}, []string{"WARN began: connection refused", "INFO ended: connection refused"}},
		{"another reason of the same fault", func(p *problems) {
			p.failed("x", away)
			p.failed("x", fault{away.class, away.where, "", "no route to host"})
			p.works("x")
		}, []string{"WARN began: connection refused", "INFO ended: no route to host"}},
		{"another fault of the same holder", func(p *problems) {
			p.failed("x", away)
			time.Sleep(time.Second)
			p.failed("x", broken)
			time.Sleep(time.Minute)
			p.works("x")
		}, []string{
			"WARN began: connection refused", "WARN began: internal error",
			"INFO ended: connection refused", "INFO ended: internal error",
		}},
		{"comes back each 20 s for half an hour", func(p *problems) {
			for range 90 {
				p.failed("x", away)
				time.Sleep(time.Second)
				p.works("x")
				time.Sleep(19 * time.Second)
			}
		}, []string{ // settling for 2, 4, 8, 16 and 32 s
			"WARN began: connection refused", "INFO ended: connection refused",
			"WARN began: connection refused", "INFO ended: connection refused",
			"WARN began: connection refused", "INFO ended: connection refused",
			"WARN began: connection refused", "INFO ended: connection refused",
			"WARN began: connection refused", "INFO ended: connection refused",
		}},
		{"an error of a server that starts", func(p *problems) {
			p.failed("x", away)
			p.failed("y", away)
			time.Sleep(time.Minute)
			p.failing("x", broken, starting)
			time.Sleep(starting / 2)
			p.works("x")
			p.failing("y", broken, starting)
			time.Sleep(starting - time.Millisecond)
			p.works("y")
		}, []string{"WARN began: connection refused", "INFO ended: connection refused"}},
		{"an error that one meets after the other for long enough", func(p *problems) {
			for range 4 {
				p.failing("x", broken, starting)
				p.failing("y", broken, starting)
				time.Sleep(starting / 4)
				p.works("y")
				p.failing("y", broken, starting)
				p.works("x")
			}
			p.works("y")
		}, []string{"WARN began: internal error", "INFO ended: internal error"}},
		{"an error of a server that starts twice", func(p *problems) {
			p.failing("x", broken, starting)
			p.begins("x") // a watch on which nothing comes
			time.Sleep(starting)
			p.failing("x", broken, starting)
			p.works("x")
		}, nil},
		{"a beginning does not end a problem", func(p *problems) {
			for range 100 {
				p.failed("x", away)
				p.begins("x")
				time.Sleep(maxPause)
			}
			p.works("x")
		}, []string{"WARN began: connection refused", "INFO ended: connection refused"}},
		{"works all the time", func(p *problems) { p.works("x") }, nil},
	}
	shorter := strings.NewReplacer("a problem with the API server ", "", "; the rules stay as they are", "", " where=server reason=", ": ")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := &testlog.Records{}, newSink()
				p := newProblems(slog.New(l))
				ctx, cancel := context.WithCancel(t.Context())
				go p.run(ctx, s)
				tt.do(p)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				var got []string
				for _, line := range l.Matching() {
					line, _, _ = strings.Cut(line, " lasted=")
					got = append(got, shorter.Replace(line))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
				if len(s.problems) != 0 {
					t.Errorf("at the end there are problems: %v", s.problems)
				}
				time.Sleep(forgetAfter)
				synctest.Wait()
				if len(p.byClass) != 0 {
					t.Errorf("%d problems are remembered for ever", len(p.byClass))
				}
				cancel()
			})
		})
	}
}

// The sink is told what lasts, with the time of its begin and what is wrong now.
func TestProblemsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		p := newProblems(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.run(ctx, s)
		begun := time.Now()
		p.failed("x", fault{"a", "here", "services", "first"})
		time.Sleep(time.Second)
		p.failed("y", fault{"b", "there", "", "second"})
		time.Sleep(time.Hour)
		p.failed("z", fault{"a", "here", "nodes", "first, again"})
		synctest.Wait()
		want := []source.Problem{
			{Where: "here nodes, services", Reason: "first, again", Since: begun}, {Where: "there", Reason: "second", Since: begun.Add(time.Second)},
		}
		if diff := cmp.Diff(want, s.problems); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}

// Pauses grow, and begin anew with a watch that lasts and with a server that is back.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		waited := func() time.Duration {
			begun := time.Now()
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(begun)
		}
		if d := waited(); d != 0 {
			t.Errorf("the first request waits %v", d)
		}
		for _, most := range []time.Duration{minPause, 2 * minPause, 4 * minPause, 8 * minPause, 16 * minPause, maxPause, maxPause} {
			p.watched(time.Second)
			if d := waited(); d < most/2 || d > most {
				t.Errorf("a pause of %v, want %v or up to half of it less", d, most)
			}
		}
		p.watched(lasting)
		if d := waited(); d > minPause {
			t.Errorf("after a watch that lasted the next one waits %v", d)
		}
		// The server goes away, and comes back: it refuses connections, then it answers, not well at first.
		for range 100 {
			p.failed(true)
			if d := waited(); d > maxPause {
				t.Errorf("a server that is away is asked again only after %v", d)
			}
		}
		for _, most := range []time.Duration{minPause, 2 * minPause, 4 * minPause} {
			p.failed(false)
			if d := waited(); d < most/2 || d > most {
				t.Errorf("a server that starts is asked again after %v, want %v or up to half of it less", d, most)
			}
		}
		p.notBefore(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.wait(ctx); err == nil {
			t.Error("waiting does not end with its context")
		}
	})
}
