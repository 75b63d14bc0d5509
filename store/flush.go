package store

import (
	"errors"
	"time"

	berrors "go.etcd.io/bbolt/errors"
)

// maxLosses is how often the file may be lost before it is given up. Each time, bbolt's mapping
// stays in the address space.
const maxLosses = 3

// run commits changes until the store is closed.
func (s *Store) run() {
	defer close(s.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		at, due := s.schedule.due()
		s.mu.Unlock()
		timer.Stop()
		if due {
			timer.Reset(time.Until(at))
		}
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
			s.flush()
		}
	}
}

// changed tells the schedule of a change. The caller holds mu.
func (s *Store) changed(lazy bool) {
	if lazy {
		return
	}
	idle := s.schedule.first.IsZero()
	s.schedule.changed(time.Now())
	full := s.front.bytes > maxWaiting
	if idle || full && !s.schedule.full {
		s.schedule.full = full
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// flush commits what waits, if it is time. It opens the file again if it was lost or could not be opened.
func (s *Store) flush() {
	s.mu.Lock()
	at, due := s.schedule.due()
	f := s.file
	s.mu.Unlock()
	if !due || time.Now().Before(at) {
		return // a change came while the timer fired
	}
	if f == nil && !s.reopen() {
		return
	}
	s.commit()
}

// reopen tries to open the file that there was none of.
func (s *Store) reopen() bool {
	out, err := openPath(&s.opts, nil)
	for _, n := range out.notes {
		s.log.Warn(n.message, n.args...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.log.Debug("the cache file still cannot be opened", "path", s.opts.Path, "error", err)
		s.stats.LastError = err
		s.schedule.failed(time.Now())
		return false
	}
	s.file = out.file
	return true
}

// commit writes all changes in one transaction.
func (s *Store) commit() {
	s.mu.Lock()
	f := s.file
	if f == nil || s.front.empty() {
		s.mu.Unlock()
		return
	}
	replace := s.base != f
	s.back, s.front = s.front, newOverlay()
	s.attempts++
	changes := s.back
	s.schedule.begun()
	s.mu.Unlock()

	before := f.written()
	err := f.commit(changes, replace)
	if unusable(err) {
		s.lose(f, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != f {
		return // lost meanwhile
	}
	s.stats.BytesWritten += f.written() - before
	s.back = nil
	now := time.Now()
	if err != nil {
		s.front.addOlder(changes)
		if s.stats.FailedCommits++; s.schedule.backoff == 0 {
			s.log.Warn("the cache is not written; changes are kept in memory and it is tried again", "path", s.opts.Path, "error", err, "remedy", Remedy(err))
		}
		s.stats.LastError = err
		s.schedule.failed(now)
		return
	}
	if s.stats.LastError != nil {
		s.log.Info("the cache is written again", "path", s.opts.Path)
	}
	s.stats.BytesWritten += pageSize // the meta page
	s.stats.Commits++
	s.stats.LastCommit, s.stats.LastError = now, nil
	s.base = f
	s.schedule.succeeded(now)
}

// unusable tells whether bbolt cannot go on after this error.
func unusable(err error) bool {
	return errors.As(err, new(*panicError)) || errors.Is(err, berrors.ErrInvalidMapping) || errors.Is(err, berrors.ErrDatabaseNotOpen)
}

// lose drops a file that cannot be used any more, and all that is known.
func (s *Store) lose(f *file, cause error) {
	s.mu.Lock()
	if s.file != f {
		s.mu.Unlock()
		return
	}
	s.file, s.base, s.front, s.back = nil, nil, newOverlay(), nil
	s.generation++
	s.lost = true
	clear(s.inStep)
	clear(s.persisted)
	clear(s.counts)
	s.stats.LastError = cause
	s.putIdentity(nil)
	s.schedule.begun()
	s.schedule.failed(time.Now())
	s.losses++
	s.schedule.never = s.losses >= maxLosses
	next := "a new file is made"
	if s.schedule.never {
		next = "this happened several times: from now on the cache works in memory"
	}
	s.mu.Unlock()
	f.abandon()
	s.log.Warn("the cache file was lost while in use; what is in the kernel stays, and all objects are asked for again",
		"path", s.opts.Path, "error", cause, "next", next, "remedy", Remedy(cause))
	for _, c := range []chan struct{}{s.lostC, s.wake} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// finish commits what waits and closes the file.
func (s *Store) finish() error {
	s.mu.Lock()
	// A cache of something else is not replaced before there is something to put in its place.
	worth := s.base != nil || !s.schedule.first.IsZero()
	s.mu.Unlock()
	if worth {
		s.commit()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.stats.LastError
	if s.file != nil {
		err = errors.Join(err, s.file.close())
	}
	s.file, s.base = nil, nil
	return err
}
