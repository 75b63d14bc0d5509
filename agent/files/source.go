// Package files reads Kubernetes objects from a directory of manifests and
// follows its changes, for nodes and gateways without an API server.
//
// Files named *.yaml, *.yml or *.json are read, not those in subdirectories, and
// not those whose names begin with '.' or '#'. A file holds any number of
// documents; lists (kind: List, ServiceList, ...) are taken apart. Service,
// EndpointSlice, Node and ServiceCIDR are read, other kinds ignored.
//
// What an API server would do is done as far as one node can: fields are
// checked under strict field validation, defaults are set, and a namespace that is
// left out is "default". What its controllers and allocators would do is not done:
// a Service needs a clusterIP and, to serve at one, a nodePort; and as nothing
// turns selectors into EndpointSlices, a Service whose EndpointSlices are not in
// the directory has no endpoints.
//
// # What is refused
//
// A document that is refused does not disturb the others. What it described
// before stays as it was until it is mended or removed. If its text is so
// broken that it does not show which object it was, this holds for every object
// that its file described before and does not any more.
//
// If an object is described twice, the first counts, by the names of files and
// then by the order of documents.
//
// # Age
//
// Where two Services claim the same address or port, the older one has it. An
// object whose document has no creationTimestamp gets that of its version
// before, or else the modification time of its file when it was first seen. So the
// order survives edits while the agent runs; to fix it for good, set
// creationTimestamp in the document.
//
// # Files being written
//
// A file is read only while no process has it open for writing, which a
// read lease tells (fcntl(2)); where the filesystem has no leases, or this process
// may take none, a file is read when it has been left alone for 200 ms. If the directory is
// gone or unreadable, everything stays as it was.
//
// # Memory
//
// Only names and hashes of documents are kept. A file is read document by
// document, and files that did not change are not read again.
package files

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"path/filepath"
	"time"

	"sluice/agent/source"
)

// Options say what a Source reads.
type Options struct {
	// Dir is the directory. It need not exist yet.
	Dir string
	// NodeName is the only Node that is read; empty: all of them.
	NodeName string
	// Log is for what is found in the files; nil: slog.Default().
	Log *slog.Logger
}

// Source is a directory of manifests. It implements source.Source.
type Source struct {
	options  Options
	dir      string // absolute
	decoder  decoder
	table    *table
	files    []*file // in the order of names
	synced   bool
	replaced bool // the sink was told what exists
	// device is the filesystem of the directory when it was last read.
	device uint64
	// dirProblem is why the directory cannot be read.
	dirProblem string
	reported   []source.Problem
}

var _ source.Source = (*Source)(nil)

// New returns a Source. Run does all the work.
func New(options Options) *Source {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	return &Source{
		options: options,
		decoder: decoder{seed: maphash.MakeSeed()},
		table:   newTable(),
	}
}

// String names the source.
func (s *Source) String() string { return "manifests " + s.options.Dir }

// How often the directory is looked at.
const (
	// slowPoll is for what inotify does not tell: writes through a mapping or from
	// another machine, and links deep in the path.
	slowPoll = 10 * time.Second
	// fastPoll is for where nothing tells of changes: changes are to be seen within a second.
	fastPoll = 500 * time.Millisecond
	// gather is how long events are gathered before a scan, as one save gives several.
	gather = 10 * time.Millisecond
)

// Run reads the directory and follows it until ctx ends. It may be called once.
// It fails only if the sink does, or if Dir cannot be made an absolute path.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	dir, err := filepath.Abs(s.options.Dir)
	if err != nil {
		return fmt.Errorf("find the directory of manifests: %w", err)
	}
	s.dir = dir
	w, err := newWatcher()
	if err != nil {
		s.options.Log.Warn("changes of manifests are looked for every half second, as the kernel does not tell of them", "error", err)
	} else {
		defer w.close()
	}
	l := loop{source: s, sink: sink, watcher: w, started: time.Now()}
	err = l.run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}
