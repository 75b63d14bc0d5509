package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"sluice/agent/source"
)

const templateServices = 60

// template makes a file with pages of all types, and returns it and the records of each Service, those that
// were deleted (from templateServices on) among them.
func template(t testing.TB) ([]byte, map[string]string) {
	t.Helper()
	o := idle(shm(t))
	s, _ := open(t, o)
	records := map[string]string{}
	for i := range 3 * templateServices {
		apply(s, service(fmt.Sprintf("s%03d", i), 80), endpointSlice(fmt.Sprintf("e%03d", i), fmt.Sprintf("s%03d", i), i%20))
	}
	for name := range s.Names() {
		records[name.Name] = view(t, s, name.Name)
	}
	s.Close()
	// Deletions leave free pages.
	s, _ = open(t, o)
	for i := range 3 * templateServices {
		if i >= templateServices {
			remove(s, service(fmt.Sprintf("s%03d", i), 0), endpointSlice(fmt.Sprintf("e%03d", i), "", 0))
		}
	}
	s.InStep(source.Service, "1", time.Now())
	s.InStep(source.EndpointSlice, "1", time.Now())
	s.Close()
	s, _ = open(t, o) // so that the state before the last has the same objects
	s.InStep(source.Service, "2", time.Now())
	s.Close()
	s, cached := open(t, o)
	if !cached.Complete || cached.Counts[source.Service] != templateServices {
		t.Fatalf("the template is not whole: %+v", cached)
	}
	s.Close()
	data, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	return data, records
}

// openDamaged opens a file and asserts what holds for each, however damaged: no record is wrong; the
// store works; the next start finds a whole file. It returns what was found.
func openDamaged(t *testing.T, path string, data []byte, records map[string]string) (cached Cached, logged []string) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	log := &messages{}
	o := idle(path)
	o.Log = slog.New(log)
	s, cached := Open(o)
	n := 0
	for name := range s.Names() {
		n++
		got := view(t, s, name.Name)
		// A slice may be lost without its Service. No record has a content that it never had.
		if want := records[name.Name]; got != want && !strings.HasPrefix(want, got+" ") {
			t.Errorf("Service %s is %q, was %q", name.Name, got, want)
		}
		if name.Name >= fmt.Sprintf("s%03d", templateServices) && cached.Complete {
			t.Errorf("Service %s was deleted", name.Name)
		}
	}
	if n != cached.Counts[source.Service] {
		t.Errorf("%d names, counted %d", n, cached.Counts[source.Service])
	}
	if all := min(len(records), templateServices); cached.Complete && n != all {
		t.Errorf("said to be complete with %d of %d Services", n, all)
	}
	if apply(s, service("new", 90)) != "new" || view(t, s, "new") != "90" {
		t.Error("the store does not work")
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	check(t, path)
	logged = log.take()
	s, again := Open(o)
	if got := again.Counts[source.Service]; got != n+1 {
		t.Errorf("the next start finds %d Services, want %d", got, n+1)
	}
	s.Close()
	if l := log.take(); len(l) > 0 {
		t.Errorf("the next start warns: %q", l)
	}
	return cached, logged
}

func TestDamagedFile(t *testing.T) {
	data, records := template(t)
	clone := func(change func(b []byte)) []byte {
		b := bytes.Clone(data)
		change(b)
		return b
	}
	newest := roots(bytes.NewReader(data))[0]
	page := func(b []byte, id uint64) []byte { return b[id*pageSize : (id+1)*pageSize] }
	objectsPage := pageOf(t, data, "objects")
	tests := []struct {
		name    string
		data    []byte
		records string // all, some, none
		why     string // part of the warning; empty: there is none
	}{
		{"whole", data, "all", ""},
		{"empty", nil, "none", ""},
		{"text", []byte("hello\n"), "none", "file of another program"},
		{"zeros", make([]byte, 64<<10), "none", "file of another program"},
		{"random", random(64 << 10), "none", "file of another program"},
		{"cut in the middle", data[:len(data)/2], "some", "truncated"},
		{"only meta pages", data[:2*pageSize], "none", "truncated"},
		{"first meta page zeroed", clone(func(b []byte) { clear(page(b, 0)) }), "all", "*"},
		{"second meta page zeroed", clone(func(b []byte) { clear(page(b, 1)) }), "all", "*"},
		{"both zeroed", clone(func(b []byte) { clear(b[:2*pageSize]) }), "none", "file of another program"},
		{"root page zeroed", clone(func(b []byte) { clear(page(b, newest.page)) }), "all", "*"},
		{"freelist zeroed", clone(func(b []byte) { clear(page(b, newest.freelist)) }), "all", "freelist"},
		{"root of objects zeroed", clone(func(b []byte) { clear(page(b, objectsPage)) }), "*", "header of another"},
		{"root of objects is its own child", clone(func(b []byte) {
			p := page(b, objectsPage)
			order.PutUint64(p[pageHeaderSize+8:], objectsPage)
		}), "some", "used twice"},
		{"root of objects has 65535 children", clone(func(b []byte) { order.PutUint16(page(b, objectsPage)[10:], 0xffff) }), "*", "65535 elements"},
		{"root of objects overflows", clone(func(b []byte) { order.PutUint32(page(b, objectsPage)[12:], 0xffffffff) }), "*", "header of another"},
		{"an element reaches beyond its page", clone(func(b []byte) { order.PutUint32(page(b, objectsPage)[pageHeaderSize:], 0xfffffff0) }), "some", "beyond"},
		{"newer schema", rewrite(t, data, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte("2")) }),
			"none", `version "2", here "1"`},
		{"no schema", rewrite(t, data, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("schema")) }), "all", "digest"},
		{"another program's bbolt file", rewrite(t, nil, func(tx *bbolt.Tx) error {
			b, _ := tx.CreateBucket([]byte("theirs"))
			return b.Put([]byte("k"), []byte("v"))
		}), "none", `bucket "theirs"`},
		{"a record changed by another hand", rewrite(t, data, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("objects")).Put([]byte("default/s001/"), []byte("\x00\x00\x00\x00junk"))
		}), "some", "wrong checksum"},
		{"a record removed by another hand", rewrite(t, data, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("objects")).Delete([]byte("default/s001/"))
		}), "some", "older state"},
		{"an index entry removed by another hand", rewrite(t, data, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("owners")).Delete([]byte("default/e001"))
		}), "all", "older state"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := shm(t)
			cached, logged := openDamaged(t, path, test.data, records)
			n := cached.Counts[source.Service]
			if test.records == "all" && n != templateServices || test.records == "none" && n != 0 || test.records == "some" && (n == 0 || n > templateServices) {
				t.Errorf("%d of %d Services are left, want %s", n, templateServices, test.records)
			}
			text := strings.Join(logged, "\n")
			if test.why == "*" {
				return // it depends on which state is the newest
			}
			if test.why == "" && text != "" || !strings.Contains(text, test.why) || test.why != "" && len(logged) != 1 {
				t.Errorf("logged %q, want one warning with %q", logged, test.why)
			}
			kept, err := os.ReadFile(path + damagedSuffix)
			if test.why != "" && !bytes.Equal(kept, test.data) {
				t.Errorf("the damaged file is not kept: %v", err)
			}
		})
	}
}

// pageOf returns the root page of a bucket.
func pageOf(t *testing.T, data []byte, name string) uint64 {
	t.Helper()
	path := shm(t)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var id uint64
	_ = db.View(func(tx *bbolt.Tx) error {
		id = uint64(tx.Bucket([]byte(name)).Root())
		return nil
	})
	return id
}

// rewrite changes a file as another program would.
func rewrite(t *testing.T, data []byte, change func(tx *bbolt.Tx) error) []byte {
	t.Helper()
	path := shm(t)
	if data != nil {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageSize})
	if err != nil {
		t.Fatal(err)
	}
	// Twice, so that the state before is changed, too.
	for range 2 {
		err := db.Update(func(tx *bbolt.Tx) error {
			if _, err := tx.CreateBucketIfNotExists([]byte("meta")); err != nil {
				return err
			}
			if data == nil && tx.Bucket([]byte("theirs")) != nil {
				return nil
			}
			return change(tx)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	data, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestTruncatedAnywhere and the next one look at many faults of one sort. What holds for all of them
// is in openDamaged.
func TestTruncatedAnywhere(t *testing.T) {
	data, records := template(t)
	path := shm(t)
	for size := 0; size < len(data); size += pageSize/2 + 13 {
		if openDamaged(t, path, data[:size], records); t.Failed() {
			t.Fatalf("truncated to %d bytes", size)
		}
	}
}

func TestFlippedBits(t *testing.T) {
	data, records := template(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	path := shm(t)
	damaged, used := 0, int(roots(bytes.NewReader(data))[0].pages)*pageSize
	for range 300 {
		b := bytes.Clone(data)
		at := r.IntN(used)
		if r.IntN(2) == 0 { // headers and element tables matter most
			at = at/pageSize*pageSize + r.IntN(200)
		}
		b[at] ^= 1 << r.IntN(8)
		cached, _ := openDamaged(t, path, b, records)
		if !cached.Complete {
			damaged++
		}
		if t.Failed() {
			t.Fatalf("a bit of byte %d is flipped", at)
		}
	}
	if damaged == 0 {
		t.Error("no flipped bit was noticed")
	}
}

func TestZeroedAndStalePages(t *testing.T) {
	data, records := template(t)
	path := shm(t)
	for id := range roots(bytes.NewReader(data))[0].pages {
		for _, with := range []string{"zeros", "another page", "noise"} {
			b := bytes.Clone(data)
			page := b[id*pageSize : (id+1)*pageSize]
			switch with {
			case "zeros":
				clear(page)
			case "another page":
				copy(page[8:], b[(id^1)*pageSize+8:]) // with the right number
			case "noise":
				copy(page, random(pageSize))
			}
			if openDamaged(t, path, b, records); t.Failed() {
				t.Fatalf("page %d is replaced by %s", id, with)
			}
		}
	}
}

// TestLastCommitLost: the disk wrote the meta page, but not all pages that it makes valid. The state before
// is whole, and is used.
func TestLastCommitLost(t *testing.T) {
	path := shm(t)
	o := idle(path)
	s, _ := open(t, o)
	apply(s, service("s000", 80))
	s.InStep(source.Service, "1", time.Now())
	s.InStep(source.EndpointSlice, "1", time.Now())
	s.Close()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, o)
	apply(s, service("s000", 81), service("s001", 53))
	s.Close()
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newest := roots(bytes.NewReader(after))[0]
	id := newest.txid % 2
	copy(before[id*pageSize:(id+1)*pageSize], after[id*pageSize:])
	if len(before) < len(after) {
		before = append(before, make([]byte, len(after)-len(before))...)
	}
	cached, logged := openDamaged(t, path, before, map[string]string{"s000": "80"})
	if !cached.Complete || len(logged) != 1 || !strings.Contains(logged[0], "the last commit did not reach the disk") {
		t.Errorf("%+v, logged %q", cached, logged)
	}
}

// TestOneDamagedFile: files that were kept do not pile up.
func TestOneDamagedFile(t *testing.T) {
	path := shm(t)
	for i := range 3 {
		if err := os.WriteFile(path, fmt.Appendf(nil, "junk %d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := Open(idle(path))
		s.Close()
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff([]string{"cache.db", "cache.db.damaged"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if kept, _ := os.ReadFile(path + damagedSuffix); string(kept) != "junk 2" {
		t.Errorf("kept is %q", kept)
	}
}

// TestNotAFile: what is no regular file is not touched.
func TestNotAFile(t *testing.T) {
	tests := []struct {
		name string
		put  func(path string) error
		want string
	}{
		{"directory", func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file (d"},
		{"FIFO", func(p string) error { return unix.Mkfifo(p, 0o600) }, "not a regular file (p"},
		{"socket", func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, "not a regular file (S"},
		{"link to a file", func(p string) error {
			return os.Symlink(filepath.Join(filepath.Dir(p), "victim"), p)
		}, "not a regular file (L"},
		{"dangling link", func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "none"), p) }, "not a regular file (L"},
		{"directory is a file", func(p string) error {
			return os.WriteFile(filepath.Dir(p)+"/d", nil, 0o600)
		}, "not a directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := cacheFile(t)
			victim := filepath.Join(filepath.Dir(path), "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := test.put(path); err != nil {
				t.Fatal(err)
			}
			log := &messages{}
			o := opts(path)
			if test.name == "directory is a file" {
				o.Path = filepath.Dir(path) + "/d/cache.db"
			}
			o.Log = slog.New(log)
			before, _ := os.Lstat(path)
			s, cached := Open(o)
			apply(s, service("web", 80))
			if view(t, s, "web") != "80" || cached.Complete || cached.Why == "" {
				t.Errorf("the store does not work in memory: %+v", cached)
			}
			logged := log.take()
			if len(logged) != 1 || !strings.Contains(logged[0], test.want) || !strings.Contains(logged[0], "remedy=") {
				t.Errorf("logged %q", logged)
			}
			if err := s.Close(); err == nil {
				t.Error("Close does not tell that nothing was written")
			}
			after, _ := os.Lstat(path)
			if before != nil && !os.SameFile(before, after) {
				t.Error("what was there was replaced")
			}
			if b, _ := os.ReadFile(victim); string(b) != "precious" {
				t.Errorf("the file behind the link is %q", b)
			}
		})
	}
}
