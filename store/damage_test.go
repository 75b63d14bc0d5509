package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"sluice/agent/source"
)

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
