package iptables

import (
	"bytes"
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// tick is how often Watch looks whether rules may have changed, which costs one system call.
const tick = time.Second

// effort bounds the time that Watch takes for comparing all rules: one part in this many.
const effort = 5

// expected is what Watch is to find in the kernel.
type expected struct {
	sum     digest
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
func (e *expectation) end(sum digest, commits int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sum, e.known = sum, true
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

// compared tells that all rules were compared, and the stamp before that. It returns false if rules were written meanwhile.
func (e *expectation) compared(changes int, before stamp) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known || e.changes != changes {
		return false
	}
	e.seen, e.seenRight = before, true
	return true
}

// summand is the part of a chain, or a jump, in the sum over all. A chain without rules has the digest 0.
func summand(t table, name string, d digest) digest {
	return summandOf(t, maphash.String(seed, name), d)
}

func summandOf(t table, name uint64, d digest) digest {
	s := mix(digest(name) + digest(t))
	if d != 0 {
		s += mix(digest(name) ^ d)
	}
	return s
}

// mix makes all bits depend on all, as the finalizer of MurmurHash3 does.
func mix(d digest) digest {
	d ^= d >> 33
	d *= 0xff51afd7ed558ccd
	d ^= d >> 33
	d *= 0xc4ceb9fe1a85ec53
	return d ^ d>>33
}

// readSum reads all chains of ours, and the jumps to them, as one sum.
func (w *Writer) readSum(ctx context.Context) (sum digest, err error) {
	for t := range tableCount {
		var current []byte
		var d digest
		flush := func() {
			if d != 0 {
				name := maphash.Bytes(seed, current)
				sum += summandOf(t, name, d) - summandOf(t, name, 0) // the latter was counted where the chain was named
			}
			d = 0
		}
		err := w.read(ctx, t, reader{
			chain: func(name []byte) { sum += summandOf(t, maphash.Bytes(seed, name), 0) },
			rule: func(name, line []byte) {
				if !bytes.Equal(name, current) {
					flush()
					current = append(current[:0], name...)
				}
				d = d.add(line)
			},
			lead: func(line []byte) { sum += summandOf(t, maphash.Bytes(seed, line), 0) },
		})
		if err != nil {
			return 0, err
		}
		flush()
	}
	return sum, nil
}

// Watch implements proxy.Writer. There are no notifications of both variants: it looks once in a
// second whether rules may have changed, and compares all of them if so.
func (w *Writer) Watch(ctx context.Context, changed func()) error {
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

func (w *Writer) watch(ctx context.Context, s stamper, changed func()) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var compared, notBefore time.Time
	var wrong digest // what was found last, where that was not what is expected
	var wrongAt int
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		want, now := w.expects.get(), time.Now()
		if !want.known || now.Before(notBefore) {
			continue
		}
		current, err := s.read()
		due := err != nil || !s.exact
		if want.seenRight && current == want.seen && !(due && now.Sub(compared) >= w.opts.interval()) {
			continue
		}
		sum, err := w.readSum(ctx)
		notBefore = now.Add(effort * time.Since(now))
		if err != nil {
			if ctx.Err() == nil {
				w.log.Debug("rules not compared", "family", w.opts.Family, "error", err)
			}
			continue
		}
		if !w.expects.compared(want.changes, current) {
			continue
		}
		compared = now
		switch {
		case sum == want.sum:
			wrong = 0
		case sum == wrong && want.changes != wrongAt:
			// Written anew, and just as wrong: to go on would be to write for ever.
			w.log.Warn("rules read back differ from those written, each time in the same way: this iptables spells a rule in another way, or another program changes it at once",
				"family", w.opts.Family, "iptables", w.variant.String())
		default:
			wrong, wrongAt = sum, want.changes
			changed()
		}
	}
}

func (o Options) interval() time.Duration {
	if o.Interval == 0 {
		return 30 * time.Second
	}
	return o.Interval
}
