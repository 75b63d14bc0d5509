package store

import (
	"testing"
	"time"
)

// TestSchedule simulates changes and looks at when commits happen.
func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	every := func(step, until time.Duration) []time.Duration {
		var at []time.Duration
		for d := time.Duration(0); d <= until; d += step {
			at = append(at, d)
		}
		return at
	}
	tests := []struct {
		name    string
		changes []time.Duration
		fail    func(n int) bool // whether the n-th attempt fails
		full    bool
		until   time.Duration
		commits []time.Duration
	}{
		{name: "nothing", until: time.Hour},
		{name: "one change", changes: []time.Duration{0}, until: time.Hour, commits: []time.Duration{200 * ms}},
		{name: "a burst", changes: every(50*ms, 1000*ms), until: time.Hour, commits: []time.Duration{1200 * ms}},
		{name: "churn", changes: every(50*ms, 12*time.Second), until: time.Minute,
			commits: []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second}},
		{name: "changes that pause, but not for long", changes: every(time.Second, 12*time.Second), until: time.Minute,
			commits: []time.Duration{200 * ms, 5200 * ms, 10200 * ms, 15200 * ms}},
		{name: "seldom", changes: []time.Duration{0, time.Minute, 2 * time.Minute}, until: time.Hour,
			commits: []time.Duration{200 * ms, time.Minute + 200*ms, 2*time.Minute + 200*ms}},
		{name: "many bytes", changes: every(time.Second, 3*time.Second), full: true, until: time.Minute,
			commits: []time.Duration{0, 1 * time.Second, 2 * time.Second, 3 * time.Second}},
		{name: "failures", changes: []time.Duration{0}, fail: func(n int) bool { return n < 4 }, until: time.Hour,
			commits: []time.Duration{200 * ms, 5200 * ms, 15200 * ms, 35200 * ms, 75200 * ms}},
		{name: "it fails for long", changes: []time.Duration{0}, fail: func(int) bool { return true }, until: 20 * time.Minute,
			commits: []time.Duration{200 * ms, 5200 * ms, 15200 * ms, 35200 * ms, 75200 * ms, 155200 * ms, 315200 * ms, 615200 * ms, 915200 * ms}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			s := schedule{quiet: 200 * ms, interval: 5 * time.Second}
			var commits []time.Duration
			changes := test.changes
			now := start
			for range 10000 {
				at, due := s.due()
				if len(changes) > 0 && (!due || !at.Before(start.Add(changes[0]).Add(1))) {
					now = start.Add(changes[0])
					changes = changes[1:]
					s.changed(now)
					s.full = test.full
					continue
				}
				if !due || at.Sub(start) > test.until {
					break
				}
				if at.After(now) {
					now = at
				}
				commits = append(commits, now.Sub(start))
				s.begun()
				if test.fail != nil && test.fail(len(commits)-1) {
					s.failed(now)
				} else {
					s.succeeded(now)
				}
			}
			if len(commits) != len(test.commits) {
				t.Fatalf("commits at %v, want %v", commits, test.commits)
			}
			for i := range commits {
				if commits[i] != test.commits[i] {
					t.Fatalf("commits at %v, want %v", commits, test.commits)
				}
			}
		})
	}
}
