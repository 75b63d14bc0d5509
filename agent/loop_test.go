package agent

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"sluice/agent/config"
	"sluice/agent/health"
	"sluice/proxy"
)

// TestWake holds that a loop that cannot do what is due does not turn without a pause for it.
func TestWake(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		planned bool
		set     func(*proxier)
	}{
		{"nothing is planned", false, func(p *proxier) { p.queued = time.Time{} }},
		{"nothing is planned, and a write waits", false, func(*proxier) {}},
		{"nothing is planned any more, and flows are to be looked at", false, func(p *proxier) {
			p.queued, p.flowCheck = time.Time{}, true
		}},
		{"flows cannot be listed", true, func(p *proxier) { p.queued = time.Time{} }},
		{"a write failed", true, func(p *proxier) { p.flowCheck, p.retryAt = true, now.Add(time.Second) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := slog.New(slog.NewTextHandler(io.Discard, nil))
			p := newProxier(proxy.IPv4, nil, nil, health.NewTracker(time.Minute, time.Now), log)
			c.set(p)
			l := &loop{
				cfg: config.Config{SyncPeriod: time.Second, MinSyncPeriod: time.Millisecond}, log: log,
				planned: c.planned, proxiers: []*proxier{p},
				nextSync: now.Add(-time.Minute), lastWrite: now.Add(-time.Minute),
			}
			l.write(t.Context(), now)
			l.checkFlows(t.Context(), now)
			if wake := l.wake(); !wake.After(now) {
				t.Errorf("wakes %v before now", now.Sub(wake))
			}
		})
	}
}
