package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/source"
)

// batch is how many changes are handed on together while everything is handed on
// for the first time; afterwards the changes of a scan stay together.
const batch = 1024

// outcome is what a scan left open.
type outcome struct {
	// absent: the directory cannot be read.
	absent bool
	// wait is when to look again at files that are being written; 0: there are none.
	wait time.Duration
}

func (o *outcome) retryIn(wait time.Duration) {
	if o.wait == 0 || wait < o.wait {
		o.wait = wait
	}
}

// scan looks at the directory once and hands on what changed.
func (s *Source) scan(ctx context.Context, sink source.Sink) (outcome, error) {
	dir, names, err := readDir(s.dir)
	if err == nil {
		if err = s.checkDevice(dir, names); err != nil {
			dir.Close()
		}
	}
	if err != nil {
		s.dirProblem = err.Error()
		s.report(sink)
		return outcome{absent: true}, nil
	}
	defer dir.Close()
	s.dirProblem = ""

	var out outcome
	changed := s.merge(dir, names, &out)
	if err := s.take(ctx, sink, dir, changed, &out); err != nil {
		return out, err
	}
	complete, err := s.handOn(ctx, sink, dir)
	if err != nil {
		return out, err
	}
	if !complete {
		out.retryIn(busyRetry)
	}
	s.report(sink)
	return out, nil
}

// readDir opens a directory and lists it in the order of names.
func readDir(path string) (*os.File, []string, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, errors.New("there is no such directory: make it; it is taken up as soon as it is there")
	case errors.Is(err, unix.ENOTDIR):
		return nil, nil, errors.New("this is not a directory: name one that holds the manifests")
	case errors.Is(err, os.ErrPermission):
		return nil, nil, errors.New("open the directory: permission denied: make it readable for the user that runs this agent")
	case err != nil:
		return nil, nil, fmt.Errorf("open the directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		dir.Close()
		return nil, nil, fmt.Errorf("list the directory: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isManifest(name) })
	slices.Sort(names)
	return dir, names, nil
}

// checkDevice finds a directory whose filesystem is not mounted any more, or not
// yet: what is seen then is the empty directory that it is mounted on.
func (s *Source) checkDevice(dir *os.File, names []string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("look at the directory: %w", err)
	}
	device := uint64(st.Dev)
	if len(s.files) > 0 && len(names) == 0 && device != s.device {
		return errors.New("the directory holds no manifests and is on another filesystem than before: mount that, or put a manifest here")
	}
	s.device = device
	return nil
}

// merge brings the list of files up to date with the directory, and returns the files to read.
func (s *Source) merge(dir *os.File, names []string, out *outcome) []*file {
	before := s.files
	s.files = make([]*file, 0, len(names))
	for _, name := range names {
		for len(before) > 0 && before[0].name < name {
			s.files = append(s.files, before[0])
			before = before[1:]
		}
		if len(before) > 0 && before[0].name == name {
			s.files = append(s.files, before[0])
			before = before[1:]
		} else {
			s.files = append(s.files, &file{name: name})
		}
	}
	// Those that were not listed are looked for too: a listing is no snapshot, and may
	// miss a file that is renamed over meanwhile.
	s.files = append(s.files, before...)

	var changed []*file
	s.files = slices.DeleteFunc(s.files, func(f *file) bool {
		read, gone := f.look(dir)
		if gone {
			return s.vanish(f, out)
		}
		f.goneSince = time.Time{}
		if read {
			changed = append(changed, f)
		}
		return false
	})
	return changed
}

// goneGrace is how long a file must be gone before what it described goes too.
// Many programs replace a file by removing it first.
const goneGrace = 200 * time.Millisecond

// vanish handles a file that is not there, and tells whether it is gone for good.
func (s *Source) vanish(f *file, out *outcome) bool {
	now := time.Now()
	if f.goneSince.IsZero() && len(f.docs) > 0 {
		f.goneSince, f.settled = now, false
		s.table.yield(f)
	}
	if wait := goneGrace - now.Sub(f.goneSince); wait > 0 {
		out.retryIn(wait)
		return false
	}
	s.table.replace(f, nil)
	return true
}

// look tells whether a file has to be read, or is gone. What stands in the way of
// reading it becomes its problem; what it described before stays.
func (f *file) look(dir *os.File) (read, gone bool) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), f.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, true
	}
	if f.link = err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK; f.link {
		err = unix.Fstatat(int(dir.Fd()), f.name, &st, 0)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		f.fail("this is a symbolic link to a file that does not exist: mend or remove it")
		return false, false
	case err != nil:
		f.fail(fmt.Sprintf("look at the file: %v", err))
		return false, false
	case !isRegular(&st):
		f.fail(notRegular(&st).Error())
		return false, false
	}
	return !f.settled || idOf(&st) != f.id, false
}

// fail notes why a file cannot be taken up, and that it has to be read once that is mended.
func (f *file) fail(problem string) {
	f.problem, f.settled, f.busySince = problem, false, time.Time{}
}

// take reads files and puts what they describe into the table.
func (s *Source) take(ctx context.Context, sink source.Sink, dir *os.File, changed []*file, out *outcome) (err error) {
	if len(changed) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := startReader(ctx, &s.decoder, dir, changed)
	var v version
	for t := range r.ordered {
		<-t.done
		switch {
		case err != nil: // the reader is stopped; what it has begun is dropped
		case t.end:
			s.finish(&v, t, out)
			v = version{}
		default:
			v.file = t.file
			v.add(s.documentOf(t), t)
			if v.first = v.first || !s.synced && len(t.file.docs) == 0; v.first && len(v.docs) >= batch {
				v.file.id = t.result.id // not settled yet, so it counts for creationTimestamps only
				s.table.extend(v.file, v.cut())
			}
		}
		r.release(t)
		// Documents that were decoded but are not in the table yet have entries there without claims,
		// which resolving would drop.
		if err == nil && !s.synced && len(v.docs) == 0 && len(s.table.touched) >= batch {
			if err = s.flush(ctx, sink); err != nil {
				cancel()
			}
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// flush hands on what can be handed on before everything is read. Files and
// documents come in order, so that of two claims to an object the first is there already.
func (s *Source) flush(ctx context.Context, sink source.Sink) error {
	changes, _ := s.table.resolve()
	return sink.Apply(ctx, changes)
}

// handOn hands on everything that changed, in one piece. It is not complete if an
// object could not be loaded: that one stays as it was until the next scan.
func (s *Source) handOn(ctx context.Context, sink source.Sink, dir *os.File) (complete bool, err error) {
	changes, missing := s.table.resolve()
	if len(missing) > 0 {
		var more []source.Change
		s.load(dir, missing)
		more, missing = s.table.resolve()
		changes = append(changes, more...)
		slices.SortFunc(changes, compareChanges)
	}
	if len(changes) > 0 {
		err = sink.Apply(ctx, changes)
	}
	return len(missing) == 0, err
}

// finish ends the reading of a file: its new version replaces the one before, or
// is dropped if it could not be read to its end.
func (s *Source) finish(v *version, t *task, out *outcome) {
	f, result := t.file, &t.result
	switch {
	case result.gone:
		f.settled = false
		out.retryIn(busyRetry)
		return
	case result.busy:
		f.settled = false
		if f.busySince.IsZero() {
			f.busySince = time.Now()
		}
		out.retryIn(result.wait)
		return
	case result.err != nil:
		f.fail(result.err.Error())
		return
	}
	f.id, f.settled = result.id, result.id.settled(time.Now())
	f.problem, f.busySince = "", time.Time{}
	if v.first {
		s.table.extend(f, v.cut())
	} else {
		s.table.replace(f, v.cut())
	}
}
