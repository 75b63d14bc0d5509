package files

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/source"
)

// loop says when to scan.
type loop struct {
	source  *Source
	sink    source.Sink
	watcher *watcher // nil: there is no inotify
	started time.Time
	// retries is how often in a row files were found to be written.
	retries int
	// watchError is the last one, so that it is logged once.
	watchError string
}

// maxRetry is how long a file that stays open for writing is left alone at most.
// Its closing is an event of its own, so that this is for where there are no events.
const maxRetry = fastPoll

func (l *loop) run(ctx context.Context) error {
	var events <-chan struct{}
	if l.watcher != nil {
		events = l.watcher.C
	}
	l.watch() // before the first scan, so that nothing falls between the two
	for {
		begun := time.Now()
		out, err := l.source.scan(ctx, l.sink)
		if err != nil {
			return err
		}
		took := time.Since(begun)
		if err := l.sync(ctx, out); err != nil {
			return err
		}
		timer := time.NewTimer(l.next(out))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		case <-events:
			timer.Stop()
			// A burst of events costs half of the time at most.
			if !sleep(ctx, gather+min(took, 200*time.Millisecond)) {
				return ctx.Err()
			}
			select {
			case <-events:
			default:
			}
		}
	}
}

// sync says once that everything that can be read was handed on. A file that is being
// written is waited for a while. What exists is told, once, as soon as all manifests are
// understood: until then objects of an earlier run stay that none of them describes, for
// they may be in one that cannot be read.
func (l *loop) sync(ctx context.Context, out outcome) error {
	s := l.source
	if out.absent || !s.synced && out.wait > 0 && time.Since(l.started) < writerGrace {
		return nil
	}
	switch {
	case s.replaced:
	case s.understood():
		for _, kind := range source.Kinds {
			if err := l.sink.Replace(ctx, kind, s.table.names(kind)); err != nil {
				return err
			}
		}
		s.replaced = true
	case !s.synced:
		s.options.Log.Warn("what an earlier run knew stays until there are manifests and all can be read", "directory", s.dir)
	}
	if !s.synced {
		s.synced = true
		l.sink.Synced()
	}
	return nil
}

// understood tells whether it is known of every document in the directory which objects it
// is about. An empty directory tells nothing: it may be one that something is to be mounted on.
func (s *Source) understood() bool {
	return len(s.files) > 0 && !slices.ContainsFunc(s.files, func(f *file) bool {
		return f.problem != "" || !f.busySince.IsZero() ||
			slices.ContainsFunc(f.docs, func(d *document) bool { return d.unnamed })
	})
}

// next returns when to scan again if nothing happens.
func (l *loop) next(out outcome) time.Duration {
	live, added := l.watch()
	wait := slowPoll
	switch {
	case added:
		wait = gather // what happened there before it was watched is not known
	case !live || out.absent:
		wait = fastPoll
	}
	if out.wait == 0 {
		l.retries = 0
		return wait
	}
	retry := min(out.wait<<min(l.retries, 10), maxRetry)
	l.retries++
	return min(wait, retry)
}

// watch watches the directory and those that its links lead to. It tells whether
// all changes will be told of, and whether there are directories that were not watched before.
func (l *loop) watch() (live, added bool) {
	if l.watcher == nil {
		return false, false
	}
	s := l.source
	added, err := l.watcher.watch(s.dirsToWatch())
	if err == nil {
		return !isRemote(s.dir), added
	}
	if text := err.Error(); text != l.watchError && s.dirProblem == "" {
		l.watchError = text
		s.options.Log.Info("manifests are looked at every half second, as not every directory can be watched", "reason", text)
	}
	return false, added
}

// dirsToWatch returns the directory, and those that decide what it and its files are.
func (s *Source) dirsToWatch() []string {
	seen := map[string]bool{s.dir: true}
	dirs := []string{s.dir}
	add := func(found []string) {
		for _, dir := range found {
			if !seen[dir] {
				seen[dir] = true
				dirs = append(dirs, dir)
			}
		}
	}
	links := linkDirs(s.dir)
	add(links[:max(0, len(links)-1)]) // the last only holds the directory itself
	for _, f := range s.files {
		if f.link {
			add(linkDirs(filepath.Join(s.dir, f.name)))
		}
	}
	return dirs
}

// isRemote tells whether others can change a directory without this kernel's
// knowledge, so that inotify tells of this machine's own changes only.
func isRemote(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
	}
	return false
}

// sleep waits, and tells whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
