package store

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"sluice/agent/source"
	"sluice/test/testlog"
)

// templateServices is how many Services are in the template.
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
	log := &testlog.Records{}
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
	logged = log.Take()
	s, again := Open(o)
	if got := again.Counts[source.Service]; got != n+1 {
		t.Errorf("the next start finds %d Services, want %d", got, n+1)
	}
	s.Close()
	if l := log.Take(); len(l) > 0 {
		t.Errorf("the next start warns: %q", l)
	}
	return cached, logged
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
