package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

const (
	// pageSize is bbolt's, and not the kernel's, which is 16 KiB on some Raspberry Pis: a
	// small change would write four times as much.
	pageSize = 4096
	// maxFileSize leaves room in a 32-bit address space, of which bbolt maps a power of
	// two. 10,000 Services with 10 endpoints each need some 15 MB.
	maxFileSize = 256 << 20
	// fileGrowth is the step in which the file grows, in bytes. bbolt's own step is 16 MiB.
	fileGrowth = 1 << 20
	// fillPercent is how full bbolt leaves pages that it splits. Most records come once, in order,
	// and change little later.
	fillPercent = 0.9
)

// file is an open bbolt file that was checked.
type file struct {
	db   *bbolt.DB
	f    *os.File      // db's
	dead chan struct{} // closed by abandon
}

// openDB hands a file that is locked, and empty or checked, to bbolt. It closes the file if it fails.
func openDB(f *os.File) (*file, error) {
	var db *bbolt.DB
	err := guard(func() (err error) {
		db, err = bbolt.Open(f.Name(), 0o600, &bbolt.Options{
			// The lock is held already; to take it again succeeds at once.
			Timeout:  1,
			OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
			PageSize: pageSize,
			MaxSize:  maxFileSize,
			// Zero maps what the file has, which is as little as possible.
			InitialMmapSize: 0,
			// The map finds free pages in constant time.
			FreelistType: bbolt.FreelistMapType,
			// Without a freelist in the file, bbolt walks through all pages at each start and after
			// each failed commit, in a goroutine of its own, where a damaged
			// page or an I/O error ends the process. The price is one page per commit.
			NoFreelistSync: false,
		})
		return err
	})
	if err != nil {
		letGo(f) // bbolt's mapping is left, if it could not read it
		return nil, fmt.Errorf("open with bbolt: %w", err)
	}
	db.AllocSize = fileGrowth
	return &file{db: db, f: f, dead: make(chan struct{})}, nil
}

// view runs fn in a read transaction. No slice of the file may leave fn.
func (f *file) view(fn func(*bbolt.Tx) error) error {
	return guard(func() error { return f.db.View(fn) })
}

// commit writes changes in one transaction. If replace is true, they are all that the file holds then.
//
// A read that ends in a fault can leave bbolt's locks locked. So a commit has a goroutine of its
// own, which is left alone in such a case.
func (f *file) commit(changes *overlay, replace bool) error {
	done := make(chan error, 1)
	go func() {
		done <- guard(func() error {
			return f.db.Update(func(tx *bbolt.Tx) error {
				if replace {
					if err := deleteBuckets(tx); err != nil {
						return fmt.Errorf("remove older records: %w", err)
					}
				}
				return writeChanges(tx, changes)
			})
		})
	}()
	select {
	case err := <-done:
		return err
	case <-f.dead:
		return ErrLost
	}
}

func deleteBuckets(tx *bbolt.Tx) error {
	var names [][]byte
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		names = append(names, bytes.Clone(name))
		return nil
	})
	for _, name := range names {
		err = errors.Join(err, tx.DeleteBucket(name))
	}
	return err
}

func writeChanges(tx *bbolt.Tx, changes *overlay) error {
	var buckets [len(bucketNames)]*bbolt.Bucket
	for i, name := range bucketNames {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return fmt.Errorf("create bucket %s: %w", name, err)
		}
		b.FillPercent = fillPercent
		buckets[i] = b
	}
	sum, _ := parseDigest(buckets[meta].Get([]byte(digestKey)))
	for _, g := range changes.inOrder() {
		b := buckets[g.bucket]
		for _, c := range changes.groups[g] {
			key := []byte(g.name + c.member)
			old := b.Get(key)
			if bytes.Equal(old, c.value) {
				continue
			}
			sum.remove(old)
			sum.add(c.value)
			var err error
			if c.value == nil {
				err = b.Delete(key)
			} else {
				err = b.Put(key, c.value)
			}
			if err != nil {
				return fmt.Errorf("write record %q: %w", key, err)
			}
		}
	}
	return errors.Join(buckets[meta].Put([]byte(schemaKey), []byte(schemaVersion)), buckets[meta].Put([]byte(digestKey), sum.bytes()))
}

// close closes the file. Where bbolt fails to, it is let go of all the same.
func (f *file) close() error {
	err := guard(f.db.Close)
	if err != nil {
		f.abandon()
	}
	return err
}

// abandon lets go of a file that bbolt failed on. bbolt may have left locks locked, so that none of
// its functions is called any more, and its mapping stays until the process ends.
func (f *file) abandon() {
	close(f.dead)
	letGo(f.f)
}

// letGo closes a file that may still be mapped: the mapping would keep the lock beyond the descriptor's end.
func letGo(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}

// written returns how many bytes bbolt wrote, but for meta pages.
func (f *file) written() int64 {
	stats := f.db.Stats()
	return stats.TxStats.GetPageAlloc()
}

func (f *file) size() int64 {
	info, err := f.f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// release takes the pages that were read out of the process' memory. They stay in the kernel's
// page cache.
func (f *file) release() error {
	return f.view(func(tx *bbolt.Tx) error {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, f.db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
		if errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
		return nil
	})
}

// panicError is a panic that was caught: bbolt's answer to pages that make no sense, or memory of the
// mapping that cannot be read (SIGBUS: the file was truncated, or the medium has an error).
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	if fault, ok := e.value.(interface{ Addr() uintptr }); ok {
		return fmt.Sprintf("the mapped file cannot be read at address %#x (truncated, or an I/O error)", fault.Addr())
	}
	return fmt.Sprintf("bbolt found pages that make no sense: %v", e.value)
}

// guard runs fn, which reads mapped files, and makes its panics and memory faults errors.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r, stack: debug.Stack()}
		}
	}()
	return fn()
}
