package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// opts are options for tests: no waiting, no fsync.
func opts(path string) Options {
	return Options{
		Path: path, Identity: Identity{NodeName: "node-1", Source: "test"}, CommitInterval: time.Millisecond, Quiet: time.Millisecond,
		LockTimeout: 50 * time.Millisecond, noSync: true,
	}
}

// idle are options for tests that commit nothing before Close.
func idle(path string) Options {
	o := opts(path)
	o.CommitInterval, o.Quiet = time.Hour, time.Hour
	return o
}

// open opens a store that the test need not close, and checks the file at the end.
func open(t testing.TB, o Options) (*Store, Cached) {
	t.Helper()
	s, cached := Open(o)
	t.Cleanup(func() {
		select {
		case <-s.stop:
		default:
			_ = s.Close()
		}
		check(t, o.Path)
	})
	return s, cached
}

// check runs bbolt's consistency check, and the store's own.
func check(t testing.TB, path string) {
	t.Helper()
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || path == "" {
		return
	}
	if err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file is no file: %v, %v", info, err)
		return
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second, PreLoadFreelist: true})
	if err != nil {
		t.Errorf("open for the check: %v", err)
		return
	}
	defer db.Close()
	_ = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("bbolt's check: %v", err)
		}
		return nil
	})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := examine(f, nil); err != nil {
		t.Errorf("the store's check: %v", err)
	}
}

func cacheFile(t testing.TB) string { return filepath.Join(t.TempDir(), "cache.db") }

// shm returns a path in memory, for tests that write a lot.
func shm(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sluice-store-test")
	if err != nil {
		return cacheFile(t)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "cache.db")
}

func ptr[T any](v T) *T { return &v }

func service(name string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "0a1b2c3d-0000-4000-8000-000000000000", ResourceVersion: "7"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}},
		},
	}
}

func endpointSlice(name, service string, endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: "0a1b2c3d-0000-4000-8000-000000000001", ResourceVersion: "8",
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8080))}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.42.%d.%d", i/256, i%256)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
			NodeName:   ptr(fmt.Sprintf("node-%d", i%3)),
		})
	}
	return s
}

func serviceCIDR(name, cidr string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
}

func node(name, podCIDR string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDR}}
}

// apply applies objects and returns what was dirty, as text.
func apply(s *Store, objs ...metav1.Object) string {
	var d Dirty
	for _, o := range objs {
		s.Apply(source.Change{Kind: kind(o), Namespace: o.GetNamespace(), Name: o.GetName(), Object: o}, &d)
	}
	return d.text()
}

// remove applies deletions.
func remove(s *Store, objs ...metav1.Object) string {
	var d Dirty
	for _, o := range objs {
		s.Apply(source.Change{Kind: kind(o), Namespace: o.GetNamespace(), Name: o.GetName()}, &d)
	}
	return d.text()
}

func kind(o metav1.Object) source.Kind {
	switch o.(type) {
	case *corev1.Service:
		return source.Service
	case *discoveryv1.EndpointSlice:
		return source.EndpointSlice
	case *corev1.Node:
		return source.Node
	}
	return source.ServiceCIDR
}

func (d *Dirty) text() string {
	var all []string
	for name := range d.Services {
		all = append(all, name.Name)
	}
	slices.Sort(all)
	if d.Node {
		all = append(all, "NODE")
	}
	return strings.Join(all, " ")
}

// names lists all Services.
func names(s *Store) string {
	var all []string
	for name := range s.Names() {
		all = append(all, name.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// view tells of a Service in short: port, slices with their number of endpoints.
func view(t testing.TB, s *Store, name string) string {
	t.Helper()
	svc, all, err := s.Service(source.Name{Namespace: "default", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	text := "none"
	if svc != nil {
		text = fmt.Sprint(svc.Spec.Ports[0].Port)
	}
	for _, slice := range all {
		text += fmt.Sprintf(" %s:%d", slice.Name, len(slice.Endpoints))
	}
	return text
}

// settle waits until nothing waits to be committed.
func settle(t testing.TB, s *Store) {
	t.Helper()
	wait(t, "everything is committed", func() bool { return s.Stats().Waiting == 0 })
}

func wait(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within 20 s: %s", what)
		}
	}
}
