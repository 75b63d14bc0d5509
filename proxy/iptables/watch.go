package iptables

import (
	"context"
	"sync"
	"time"

	"sluice/proxy"
)

// tick is how often Watch looks whether rules may have changed, which costs a system call or two.
const tick = 500 * time.Millisecond

// Watch bounds the time that is taken for comparing all rules, and for mending them, while another program
// changes them again and again: by pauses of so many times what comparing took.
const (
	effort = 5
	// quietEffort is for when rules were right each time although something changed: a busy program changes rules of its own, and
	// the generation is that of all. It is come to by doubling, and left when nothing changes for a tick.
	quietEffort  = 200
	repairEffort = 15
	// quickRepairs is how many repairs in a row have a pause of what comparing took alone.
	quickRepairs = 10
	// longestPause is the longest pause before rules are written anew that were read back in another spelling each time.
	longestPause = 5 * time.Minute
)

// expected is what Watch is to find in the kernel.
type expected struct {
	print   fingerprint
	known   bool // false while rules are written, and after an error
	changes int  // how often that became another
	// seen is the stamp of rules that were as they should be, if seenRight is true.
	seen      stamp
	seenRight bool
}

// expectation is what the writer tells Watch.
type expectation struct {
	mu sync.Mutex
	expected
	// stamps is nil until Watch is called.
	stamps *stamper
}

// begin is to be called before rules are written.
func (e *expectation) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = false
	e.changes++
	if e.seenRight {
		now, err := e.stamps.read()
		e.seenRight = err == nil && now == e.seen
	}
}

// end is to be called when they are written. commits is the number of transactions that this took; 0 if
// that is not known: all rules are compared once then. For stamps that are not exact, a change by another program in the
// moment before or after ours is found when the interval of the Options is over.
func (e *expectation) end(print fingerprint, commits int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.print, e.known = print, true
	e.changes++
	if e.seenRight {
		now, err := e.stamps.read()
		e.seenRight = err == nil && commits > 0 && (!e.stamps.exact || now == e.seen.after(commits))
		e.seen = now
	}
}

func (e *expectation) get() expected {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.expected
}

// compared tells that all rules were compared, the stamp before that, and whether they were right. It returns false if
// rules were written meanwhile.
func (e *expectation) compared(changes int, before stamp, right bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known || e.changes != changes {
		return false
	}
	e.seen, e.seenRight = before, right
	return true
}

// Watch implements proxy.Writer. There are no notifications of both variants: it looks twice in a
// second whether rules may have changed, and compares all of them if so.
func (w *Writer) Watch(ctx context.Context, changed func(by proxy.Program)) error {
	s, err := w.openStamp()
	if err != nil {
		return err
	}
	w.expects.mu.Lock()
	defer w.expects.mu.Unlock()
	w.expects.stamps, w.expects.seenRight = &s, false
	go func() {
		w.watch(ctx, s, changed)
		w.expects.mu.Lock()
		defer w.expects.mu.Unlock()
		w.expects.seenRight = false
		s.close()
	}()
	return nil
}

func (w *Writer) watch(ctx context.Context, s stamper, changed func(by proxy.Program)) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var compared, notBefore time.Time
	var wrong fingerprint   // what was found last, if that was not what is expected
	var pause time.Duration // after the last repair
	asked := -1             // expected.changes when that was asked for
	repairs := 0            // in a row
	share := effort         // of the time that comparing takes
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		want, now := w.expects.get(), time.Now()
		if !want.known || want.changes == asked || now.Before(notBefore) {
			continue
		}
		current, err := s.read()
		due := err != nil || !s.exact
		if want.seenRight && current == want.seen && !(due && now.Sub(compared) >= w.opts.interval()) {
			share = effort
			continue
		}
		found, err := w.readFingerprint(ctx)
		took := time.Since(now)
		notBefore = now.Add(min(time.Duration(share)*took, w.opts.interval()))
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// To reconcile will fail as well, for all to see, and is tried again until it is known what the kernel has.
			w.log.Debug("rules not compared", "family", w.opts.Family, "error", err)
			asked = want.changes
			changed(proxy.Program{}) // nobody tells who it was
			continue
		}
		right := found == want.print
		if !w.expects.compared(want.changes, current, right) {
			continue
		}
		compared = now
		switch {
		case right:
			wrong, pause, repairs = fingerprint{}, 0, 0
			share = min(2*share, quietEffort)
			continue
		case found == wrong && found.shape == want.print.shape:
			// Written anew, and just as wrong. Nothing is missing, and to write it each second would mend nothing either.
			if pause < tick {
				w.log.Warn("rules read back differ from those written, each time in the same way: this iptables spells a rule in another way, or another program changes it at once; they are written anew from time to time",
					"family", w.opts.Family, "iptables", w.variant.String())
			}
			pause = min(max(2*pause, 4*tick), longestPause)
		case repairs < quickRepairs:
			pause = took
		default:
			pause = min(repairEffort*took, longestPause)
		}
		repairs++
		share = effort
		wrong, asked, notBefore = found, want.changes, now.Add(pause)
		changed(proxy.Program{}) // nobody tells who it was
	}
}

func (o Options) interval() time.Duration {
	if o.Interval == 0 {
		return 30 * time.Second
	}
	return o.Interval
}
