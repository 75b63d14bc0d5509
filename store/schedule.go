package store

import "time"

const (
	// maxWaiting is how many bytes of changes wait at most before they are committed
	// whatever the interval says, so that a first list of many objects does not pile up in memory.
	maxWaiting = 1 << 20
	// maxBackoff bounds the time between attempts, in commit intervals: 5 minutes by default.
	maxBackoff = 60
)

// schedule decides when to commit: at once when changes pause, but seldom, and
// later and later when it fails.
type schedule struct {
	quiet, interval time.Duration
	never           bool
	first, last     time.Time // of the changes that wait; zero if none do
	full            bool      // too many wait
	committed       time.Time
	retry           time.Time // not before; zero after a success
	backoff         time.Duration
}

func (s *schedule) changed(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
}

// due tells when to commit, if at all.
func (s *schedule) due() (time.Time, bool) {
	if s.never || s.first.IsZero() {
		return time.Time{}, false
	}
	at := s.first
	if !s.full {
		at = s.first.Add(s.interval)
		if calm := s.last.Add(s.quiet); calm.Before(at) {
			at = calm
		}
		if next := s.committed.Add(s.interval); !s.committed.IsZero() && next.After(at) {
			at = next
		}
	}
	if s.retry.After(at) {
		at = s.retry
	}
	return at, true
}

// begun notes that what waits is being committed.
func (s *schedule) begun() { s.first, s.last, s.full = time.Time{}, time.Time{}, false }

func (s *schedule) succeeded(now time.Time) {
	s.committed, s.retry, s.backoff = now, time.Time{}, 0
}

func (s *schedule) failed(now time.Time) {
	s.backoff = min(max(2*s.backoff, s.interval), maxBackoff*s.interval)
	s.retry = now.Add(s.backoff)
	s.changed(now)
}
