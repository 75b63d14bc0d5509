package store

import (
	"strings"
	"time"

	"sluice/agent/source"
)

const inStepPrefix = "in-step/"

// step is when a kind was in step with its source, and at which resourceVersion.
type step struct {
	at              time.Time
	resourceVersion string
}

func (s step) String() string { return s.at.UTC().Format(time.RFC3339Nano) + " " + s.resourceVersion }

func parseStep(text string) (step, bool) {
	at, version, _ := strings.Cut(text, " ")
	t, err := time.Parse(time.RFC3339Nano, at)
	return step{t, version}, err == nil
}

// InStep notes that at this time the store had everything that the source knew of a
// kind: after the first Replace, and again whenever the source says that nothing is missing (a
// bookmark, for example). It tells whether the records became complete by it, for the first time or after Lost.
//
// The time alone is written every Options.AgeInterval at most, or with other changes, so that a
// cache may be a little younger than it says, but never older.
func (s *Store) InStep(kind source.Kind, resourceVersion string, at time.Time) (completed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := complete(s.inStep)
	now := step{at.Round(0), resourceVersion}
	first := s.inStep[kind] == step{}
	s.inStep[kind] = now
	s.lost = s.lost && !complete(s.inStep)
	lazy := !first && at.Sub(s.persisted[kind]) < s.opts.AgeInterval && !at.Before(s.persisted[kind])
	if !lazy {
		s.persisted[kind] = at
	}
	s.putMeta(inStepPrefix+string(kind), now.String(), lazy)
	return !was && complete(s.inStep)
}

// InStepTimes returns when each kind was in step with the source for the last time, in this
// run or an earlier one. A kind that never was is missing.
func (s *Store) InStepTimes() map[source.Kind]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return times(s.inStep)
}

func times(steps map[source.Kind]step) map[source.Kind]time.Time {
	all := make(map[source.Kind]time.Time, len(steps))
	for kind, s := range steps {
		all[kind] = s.at
	}
	return all
}

// ResourceVersion returns what InStep was told last of a kind, "" if nothing.
func (s *Store) ResourceVersion(kind source.Kind) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inStep[kind].resourceVersion
}

// Age is how long ago Services or EndpointSlices, whichever is longer, were in step with the
// source. It is unknown (false) if they never were, or if that is in the future: machines without
// a clock of their own start in the past.
func (s *Store) Age(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !complete(s.inStep) {
		return 0, false
	}
	age := now.Sub(s.inStep[source.Service].at)
	if other := now.Sub(s.inStep[source.EndpointSlice].at); other > age {
		age = other
	}
	return age, age >= 0
}
