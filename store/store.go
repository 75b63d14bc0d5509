package store

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"sluice/agent/source"
)

// Options say where and how a Store keeps its records. The zero value works in memory.
type Options struct {
	// Path is the bbolt file. Its directory is made (mode 0700) if it is missing. Empty: in memory only.
	Path     string
	Identity Identity
	// CommitInterval is the least time between two commits, each of which waits for the disk
	// twice (records, then the page that makes them valid). Zero: 5 s.
	CommitInterval time.Duration
	// Quiet is how long nothing has to change before a commit that the interval allows. Zero: 200 ms.
	Quiet time.Duration
	// AgeInterval is how often it is written that nothing changed (see InStep). Zero: 10 min.
	AgeInterval time.Duration
	// LockTimeout is how long Open waits for another process that has the file. Zero: 1 s.
	LockTimeout time.Duration
	// Log takes warnings. Nil: none are written.
	Log *slog.Logger

	noSync bool // for tests
}

// Cached is what Open found in the file.
type Cached struct {
	// Counts are the records in use, by kind. All of them are to be planned at the start; whatever
	// the source hands over later and is the same makes nothing dirty.
	Counts map[source.Kind]int
	// Complete tells whether they can be served before the source answers: nothing is missing
	// that an earlier agent knew, and they are of this node and cluster.
	Complete bool
	// Why says why not; empty if Complete.
	Why string
	// InStep is when each kind was in step with the source for the last time.
	InStep map[source.Kind]time.Time
	// Skipped counts records that were there and could not be read.
	Skipped int
}

// ErrLost is the error of reads after the file was lost while it was in use. The records are
// incomplete until the source has handed over everything again (see Store.Lost).
var ErrLost = errors.New("the cache file was lost: the source has to hand over all objects again")

// Store holds objects. Its methods are for one goroutine, but for Stats, Age, InStepTimes and Counts,
// which may be called from any.
type Store struct {
	opts Options
	log  *slog.Logger

	mu    sync.Mutex
	front *overlay // changes, the newest
	back  *overlay // changes that are being committed; nil if none are
	// file is where changes are committed to; nil if there is none. base is the same, if its
	// records count, and nil if the next commit replaces them.
	file, base *file
	attempts   int // commits that were begun
	// generation changes when all that was known is dropped.
	generation int
	lost       bool
	identity   map[string]string
	inStep     map[source.Kind]step
	persisted  map[source.Kind]time.Time
	counts     map[source.Kind]int
	schedule   schedule
	stats      Stats
	losses     int

	lostC   chan struct{}
	wake    chan struct{} // the schedule has to be looked at
	stop    chan struct{}
	stopped chan struct{}

	// Of the goroutine that calls the methods.
	value   []byte // a record that is being encoded
	scratch []byte // records that are being decoded
	bad     bool   // a record that cannot be decoded was warned of
}

// Open opens or makes the cache. It always returns a Store that works; what is wrong
// with the file is logged. Close ends it.
func Open(o Options) (*Store, Cached) {
	if o.CommitInterval == 0 {
		o.CommitInterval = 5 * time.Second
	}
	if o.Quiet == 0 {
		o.Quiet = 200 * time.Millisecond
	}
	if o.AgeInterval == 0 {
		o.AgeInterval = 10 * time.Minute
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		opts: o, log: o.Log, front: newOverlay(), identity: o.Identity.facts(),
		inStep: map[source.Kind]step{}, persisted: map[source.Kind]time.Time{}, counts: map[source.Kind]int{},
		schedule: schedule{quiet: o.Quiet, interval: o.CommitInterval},
		lostC:    make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	cached := Cached{Why: "no cache file is configured"}
	if o.Path == "" {
		s.putIdentity(nil)
		s.schedule.never = true
	} else {
		cached = s.load()
	}
	cached.Counts, cached.InStep = s.Counts(), s.InStepTimes()
	go s.run()
	return s, cached
}

// Close writes what is left to write. The Store must not be used afterwards.
func (s *Store) Close() error {
	close(s.stop)
	<-s.stopped
	return s.finish()
}

// Lost receives when the file could not be read any more while it was in use (an I/O error, or
// someone truncated it). Everything that was known is dropped then. The source has to hand over all objects
// again, as at its start; reads of Services return ErrLost until InStep was called for Services and EndpointSlices.
// Then all Services are to be planned again, those among the plans that Names does not have as deleted.
func (s *Store) Lost() <-chan struct{} { return s.lostC }

// Counts returns how many objects there are, by kind; of EndpointSlices those that name a Service.
func (s *Store) Counts() map[source.Kind]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[source.Kind]int, len(source.Kinds))
	for _, kind := range source.Kinds {
		counts[kind] = s.counts[kind]
	}
	return counts
}

// Stats are figures of the store since it was opened.
type Stats struct {
	Commits, FailedCommits int64
	// BytesWritten is what bbolt gave to the kernel to write.
	BytesWritten int64
	// LastCommit is when a commit succeeded last. LastError is that of the last attempt, nil if it
	// succeeded, or why there is no file.
	LastCommit time.Time
	LastError  error
	// FileSize is in bytes; 0 if the store works in memory.
	FileSize int64
	// Waiting counts the changes that are not in the file, WaitingBytes their bytes.
	Waiting, WaitingBytes int
	// BadRecords counts records that were skipped since they could not be read.
	BadRecords int64
}

// Stats returns the figures.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	for _, o := range []*overlay{s.front, s.back} {
		if !o.empty() {
			stats.Waiting += len(o.groups)
			stats.WaitingBytes += o.bytes
		}
	}
	if s.file != nil {
		stats.FileSize = s.file.size()
	}
	return stats
}

// ReleaseMemory takes the pages of the file that were read out of the process' resident
// memory. The kernel does so itself when it needs memory; this makes it earlier, after all
// records were read.
func (s *Store) ReleaseMemory() {
	s.mu.Lock()
	f := s.base
	s.mu.Unlock()
	if f == nil {
		return
	}
	if err := f.release(); err != nil {
		s.log.Debug("memory of the cache file is not released", "error", err)
	}
}
