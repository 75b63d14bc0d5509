package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/source"
)

// taker takes over records of a file that is not used itself.
type taker func(g groupKey, member string, value []byte)

// load opens the file when the store is opened, and takes in what it says of all records.
func (s *Store) load() Cached {
	// Records that are read from a damaged file are changes to be written to the next one.
	take := func(g groupKey, member string, value []byte) { s.restore(g, member, value) }
	opened, err := openPath(&s.opts, take)
	for _, n := range opened.notes {
		s.log.Warn(n.message, n.args...)
	}
	if err != nil {
		s.log.Warn("the cache works in memory: a restart without the source will know nothing", "path", s.opts.Path, "error", err, "remedy", Remedy(err))
		s.stats.LastError = err
		s.schedule.failed(time.Now())
	}
	s.file = opened.file
	c := opened.contents
	if c == nil {
		s.putIdentity(nil)
		return Cached{Why: why(opened.why, err)}
	}
	cached := Cached{Skipped: c.skipped}
	if diff := differences(c.identity, s.identity); diff != "" {
		s.log.Warn("the cache is not used: it belongs to something else", "path", s.opts.Path, "cause", diff,
			"remedy", "none is needed, it is written anew; if this node is the right one, check --node-name and the source")
		s.front, s.counts = newOverlay(), map[source.Kind]int{}
		s.putIdentity(nil)
		cached.Why = "the cache belongs to something else: " + diff
		return cached
	}
	for fact, value := range c.identity {
		if s.identity[fact] == "" {
			s.identity[fact] = value
		}
	}
	if opened.kept {
		s.base, s.counts = s.file, c.counts
		s.putIdentity(c.identity)
	} else {
		s.putIdentity(nil)
	}
	s.stats.BadRecords = int64(c.skipped)
	if c.damage != nil {
		cached.Why = "the cache file was damaged: " + c.damage.Error()
		return cached
	}
	s.inStep = c.inStep
	for kind, step := range c.inStep {
		s.persisted[kind] = step.at
		if !opened.kept {
			s.putMeta(inStepPrefix+string(kind), step.String(), false)
		}
	}
	cached.Complete = complete(s.inStep)
	switch {
	case c.objectCount() == 0 && !cached.Complete:
		cached.Why = "the cache is empty"
	case !cached.Complete:
		cached.Why = "the cache was not filled completely"
	}
	return cached
}

// why says why there are no records.
func why(found string, err error) string {
	switch {
	case found != "":
		return "the cache file cannot be used: " + found
	case err != nil:
		return "the cache file cannot be used: " + err.Error()
	}
	return "there was no cache"
}

// opened is what openPath found.
type opened struct {
	file     *file     // nil: there is none that can be written
	contents *contents // nil: there are no records to be used
	kept     bool      // the records are in file; else take got them
	notes    []note
	why      string // why there are no records
}

// note is a warning about the file.
type note struct {
	message string
	args    []any
}

func (o *opened) warn(message string, args ...any) { o.notes = append(o.notes, note{message, args}) }

// openPath opens the file, or makes it. A file that cannot be used as it is, is kept aside; take gets
// the records that can be read in it, unless it is nil. The error says why there is no file to
// write to.
func openPath(o *Options, take taker) (opened, error) {
	var out opened
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return out, fmt.Errorf("make the directory: %w", err)
	}
	// What a compaction left that did not end.
	if err := os.Remove(o.Path + compactSuffix); err != nil && !errors.Is(err, os.ErrNotExist) && !readOnly(err) {
		out.warn("an unfinished copy of the cache file stays", "error", err)
	}
	f, err := openLocked(o.Path, os.O_RDWR|os.O_CREATE, o.LockTimeout)
	if readOnly(err) {
		return readOnlyPath(o, out, take, err)
	}
	if err != nil {
		return out, err
	}
	found, state, err := examine(f, take)
	if err != nil { // no state of the file can be used as it is
		f.Close()
		out.contents, out.why = found, err.Error()
		to, moveErr := moveAside(o.Path)
		args := []any{"path", o.Path, "cause", err, "kept as", to, "remedy", "none is needed, a new file is written; if it happens again, check the disk"}
		if found != nil && take != nil {
			args = append(args, "records read", found.objectCount(), "records lost", found.skipped)
		}
		out.warn("the cache file cannot be used", args...)
		if moveErr != nil {
			return out, moveErr
		}
		if f, err = openLocked(o.Path, os.O_RDWR|os.O_CREATE, o.LockTimeout); err != nil {
			return out, err
		}
	} else if state != nil {
		out.contents, out.kept = found, true
	}
	if out.file, err = openDB(f); err != nil {
		out.kept, out.contents = false, nil
		return out, err
	}
	out.file.db.NoSync = o.noSync
	if out.kept && found.wasteful() {
		if compacted, err := compact(out.file, o); err != nil {
			out.warn("the cache file is larger than it needs to be", "path", o.Path, "error", err, "remedy", Remedy(err))
		} else {
			out.file = compacted
		}
	}
	return out, nil
}

// readOnlyPath reads the records of a file that cannot be written. They are kept in memory.
func readOnlyPath(o *Options, out opened, take taker, cause error) (opened, error) {
	f, err := openLocked(o.Path, os.O_RDONLY, o.LockTimeout)
	if err != nil {
		return out, cause // it does not exist either, mostly
	}
	defer f.Close()
	found, state, err := examine(f, take)
	if state != nil && take != nil {
		readContents(f, fileSize(f), *state, take)
	}
	if out.contents = found; err != nil {
		out.why = err.Error()
	}
	return out, cause
}

// examine checks a file. If its last state is whole, it returns that and what it holds (nil for a
// new file). Else take gets the records of the state before that, if it is whole, or else those that can be read, and the
// error says what is wrong; contents are nil then if the file is not the store's at all.
func examine(f *os.File, take taker) (*contents, *root, error) {
	size := fileSize(f)
	if size == 0 {
		return nil, nil, nil
	}
	// The whole file is read now, in an order that looks random to the kernel.
	_ = unix.Fadvise(int(f.Fd()), 0, size, unix.FADV_WILLNEED)
	states := roots(f)
	if len(states) == 0 {
		return nil, nil, fmt.Errorf("%w, or its first pages are damaged", errForeign)
	}
	last := readContents(f, size, states[0], nil)
	if last.damage == nil {
		return last, &states[0], nil
	}
	if errors.Is(last.damage, errForeign) || errors.Is(last.damage, errSchema) {
		return nil, nil, last.damage
	}
	if len(states) == 2 {
		if before := readContents(f, size, states[1], nil); before.damage == nil && before.schema != "" {
			if take != nil {
				readContents(f, size, states[1], take)
			}
			return before, nil, fmt.Errorf("the last commit did not reach the disk, the one before is used: %w", last.damage)
		}
	}
	if take != nil {
		readContents(f, size, states[0], take)
	}
	return last, nil, last.damage
}

func fileSize(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
