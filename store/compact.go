package store

import (
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

const (
	compactSuffix = ".compact"
	// compactFrom is the least size, in bytes, of a file that is worth a copy.
	compactFrom = 4 << 20
	// compactStep bounds a copying transaction, in bytes.
	compactStep = 1 << 20
)

// wasteful tells whether more than half of a large file is free. bbolt uses free pages again but never
// gives them back.
func (c *contents) wasteful() bool {
	return c.pages*pageSize > compactFrom && c.used*2 < c.pages
}

// compact puts a copy without free pages in the place of a file that is open, and returns it. If it fails,
// the file stays as it is.
func compact(from *file, o *Options) (_ *file, err error) {
	path := o.Path + compactSuffix
	f, err := openLocked(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, o.LockTimeout)
	if err != nil {
		return nil, fmt.Errorf("make a copy: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(path)
		}
	}()
	to, err := openDB(f)
	if err != nil {
		return nil, err
	}
	// Nothing has to last before all is copied.
	to.db.NoSync = true
	if err := guard(func() error { return bbolt.Compact(to.db, from.db, compactStep) }); err != nil {
		to.abandon()
		return nil, fmt.Errorf("copy: %w", err)
	}
	to.db.NoSync = o.noSync
	if err := f.Sync(); err != nil {
		to.abandon()
		return nil, fmt.Errorf("copy: %w", err)
	}
	if err := os.Rename(path, o.Path); err != nil {
		to.abandon()
		return nil, err
	}
	// From here on the copy is the file.
	if err := syncDir(o.Path); err != nil {
		o.Log.Warn("the smaller cache file may not last", "error", err)
	}
	_ = from.close()
	return to, nil
}
