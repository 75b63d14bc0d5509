package kube

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var serviceType = reflect.TypeFor[*corev1.Service]()

func encodedList(t testing.TB) []byte {
	s := &apiServer{scheme: newScheme()}
	return s.encode(&corev1.ServiceList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"},
		Items:    []corev1.Service{*service("a", "10.43.0.1", nil), *service("b", "10.43.0.2", ofWeb)},
	})
}

func TestReadList(t *testing.T) {
	whole := encodedList(t)
	var names []string
	list, err := readList(iotest.OneByteReader(bytes.NewReader(whole)), serviceType, func(obj runtime.Object) error {
		names = append(names, nameOf(obj))
		return nil
	})
	if err != nil || list.ResourceVersion != "7" || list.Continue != "more" || !reflect.DeepEqual(names, []string{"default/a", "default/b"}) {
		t.Errorf("read %v, %q, error %v", list, names, err)
	}
	nothing := func(runtime.Object) error { return nil }
	for n := range len(whole) - 1 {
		if _, err := readList(bytes.NewReader(whole[:n]), serviceType, nothing); !errors.Is(err, errJunk) && n < len(whole)-4 {
			t.Errorf("%d of %d bytes: error %v, want %v", n, len(whole), err, errJunk)
		}
		cut := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := readList(cut, serviceType, nothing); !errors.Is(err, errBroke) && n < len(whole)-4 {
			t.Errorf("cut by the network after %d of %d bytes: error %v, want %v", n, len(whole), err, errBroke)
		}
	}
	refused := errors.New("not wanted")
	if _, err := readList(bytes.NewReader(whole), serviceType, func(runtime.Object) error { return refused }); err != refused {
		t.Errorf("error %v, want that of the receiver", err)
	}
}

// FuzzReadList: whatever a server sends is read without a panic.
func FuzzReadList(f *testing.F) {
	whole := encodedList(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x12\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = readList(bytes.NewReader(data), serviceType, func(runtime.Object) error { return nil })
	})
}
