package store

import (
	"bytes"
	"os"
	"testing"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// FuzzRecord decodes payloads whose CRC is right but that no sluice has written.
func FuzzRecord(f *testing.F) {
	for _, o := range []interface{ Marshal() ([]byte, error) }{
		service("web", 80), endpointSlice("web-1", "web", 2), serviceCIDR("kubernetes", "10.43.0.0/16"), node("node-1", "10.42.1.0/24"),
	} {
		payload, err := o.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	s, _ := open(f, idle(""))
	f.Fuzz(func(t *testing.T, payload []byte) {
		g := serviceGroup("default", "web")
		value := append(make([]byte, crcSize), payload...)
		seal(g, "", value)
		for _, into := range []interface{ Unmarshal([]byte) error }{
			&corev1.Service{}, &discoveryv1.EndpointSlice{}, &networkingv1.ServiceCIDR{}, &corev1.Node{},
		} {
			_ = s.decode(g, change{"", value}, into)
		}
		if len(value) > crcSize {
			value[crcSize] ^= 1
			if s.decode(g, change{"", value}, &corev1.Service{}) == nil {
				t.Error("a changed record was decoded")
			}
		}
	})
}

// FuzzFile opens files of which some bytes are replaced. Whatever the checks let through, bbolt can go
// through all of it.
func FuzzFile(f *testing.F) {
	data, _ := template(f)
	f.Add(uint32(2*pageSize), []byte{1}, uint32(0), []byte{})
	f.Add(uint32(pageSize+16), []byte{0xed, 0xda}, uint32(16), []byte{0})
	f.Add(uint32(3*pageSize+8), []byte{1, 0, 255, 255}, uint32(4*pageSize), make([]byte, 64))
	dir, err := os.MkdirTemp("/dev/shm", "sluice-store-fuzz")
	if err != nil {
		f.Skip("no /dev/shm")
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	f.Fuzz(func(t *testing.T, at1 uint32, with1 []byte, at2 uint32, with2 []byte) {
		b := bytes.Clone(data)
		copy(b[int(at1)%len(b):], with1)
		copy(b[int(at2)%len(b):], with2)
		file, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(file.Name())
		defer file.Close()
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
		found, state, err := examine(file, func(groupKey, string, []byte) {})
		if err != nil || state == nil {
			return
		}
		db, err := bbolt.Open(file.Name(), 0o600, &bbolt.Options{NoSync: true})
		if err != nil {
			t.Fatalf("bbolt does not open what the check let through: %v", err)
		}
		defer db.Close()
		for i := range 2 { // after which the meta pages, of which one may be damaged, are new
			err := db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("objects"))
				if err != nil {
					return err
				}
				return b.Put([]byte("default/s030/"), bytes.Repeat([]byte{byte(i)}, 3000))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		_ = db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Errorf("the check let through, with %v: %v", found.counts, err)
			}
			return nil
		})
	})
}
