package agent

import (
	"log/slog"
	"testing"
	"time"

	"sluice/agent/counters"
	"sluice/agent/health"
	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
)

// TestRatesAreForgotten holds that nothing is kept for counters when nobody has asked for a while.
func TestRatesAreForgotten(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	p := newProxier(proxy.IPv4, nil, nil, health.NewTracker(time.Minute, time.Now), log)
	reads := 0
	l := &loop{log: log, mode: proxy.ModeNFTables, proxiers: []*proxier{p}, calls: make(chan func()), ended: make(chan struct{})}
	l.rates.kept = 50 * time.Millisecond
	l.rates.meter = counters.NewMeter([]proxy.Family{proxy.IPv4}, func(proxy.Family, func(nft.Counter)) error { reads++; return nil }, time.Now)
	go func() {
		for {
			select {
			case call := <-l.calls:
				call()
			case <-l.ended:
				return
			}
		}
	}()
	defer close(l.ended)
	name := proxy.ServiceName{Namespace: "shop", Name: "web"}
	has := func() (has bool) {
		if err := l.do(t.Context(), func() { _, has = l.rates.endpoints[name] }); err != nil {
			t.Fatal(err)
		}
		return has
	}
	for range 3 { // it works again after it was forgotten
		begun := time.Now()
		for range 2 {
			if _, err := l.Counts(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.do(t.Context(), func() {
			l.keepRates()
			l.rates.endpoints[name] = []status.ReadyCount{}
		}); err != nil {
			t.Fatal(err)
		}
		if !has() && time.Since(begun) < l.rates.kept {
			t.Error("nothing is kept")
		}
		for begun = time.Now(); has(); time.Sleep(time.Millisecond) {
			if time.Since(begun) > 10*time.Second {
				t.Fatal("it is kept for good")
			}
		}
	}
	if reads < 3 || reads > 6 { // twice in a round only if the machine was very busy
		t.Errorf("the kernel was read %d times, want once in each round", reads)
	}
}
