package kube

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var servicesKind = listKind{
	item: reflect.TypeFor[*corev1.Service](), meta: runtime.TypeMeta{APIVersion: "v1", Kind: "ServiceList"},
}

func nothing(runtime.Object) error { return nil }

func encodedList(t testing.TB) []byte {
	s := &apiServer{scheme: newScheme()}
	a, b := service("a", "10.43.0.1", nil), service("b", "10.43.0.2", ofWeb)
	a.ResourceVersion, b.ResourceVersion = "5", "6"
	return s.encode(&corev1.ServiceList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, Items: []corev1.Service{*a, *b},
	})
}

func TestReadList(t *testing.T) {
	whole := encodedList(t)
	var names []string
	list, err := readList(iotest.OneByteReader(bytes.NewReader(whole)), servicesKind, func(obj runtime.Object) error {
		names = append(names, nameOf(obj))
		return nil
	})
	if err != nil || list.ResourceVersion != "7" || list.Continue != "more" || !reflect.DeepEqual(names, []string{"default/a", "default/b"}) {
		t.Errorf("read %v, %q, error %v", list, names, err)
	}
	// The last four bytes say that the list is not encoded any further; two of them are as good.
	end := len(whole) - 4
	for n := range len(whole) {
		if _, err := readList(bytes.NewReader(whole[:n]), servicesKind, nothing); !errors.Is(err, errJunk) && !errors.Is(err, errBroke) && n != end && n != end+2 {
			t.Errorf("%d of %d bytes: error %v, want that it ends too soon", n, len(whole), err)
		}
		cut := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := readList(cut, servicesKind, nothing); !errors.Is(err, errBroke) {
			t.Errorf("cut by the network after %d of %d bytes: error %v, want %v", n, len(whole), err, errBroke)
		}
	}
	for _, page := range []string{
		"", "<html>Please log in</html>", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`, string(whole[len(protobufMagic):]),
	} {
		if _, err := readList(bytes.NewReader([]byte(page)), servicesKind, nothing); !errors.Is(err, errJunk) {
			t.Errorf("%.40q: error %v, want %v", page, err, errJunk)
		}
	}
	refused := errors.New("not wanted")
	if _, err := readList(bytes.NewReader(whole), servicesKind, func(runtime.Object) error { return refused }); err != refused {
		t.Errorf("error %v, want that of the receiver", err)
	}
}

// message writes length-delimited protobuf fields: numbers, each with its bytes.
func message(numbersAndBytes ...any) (b []byte) {
	for i := 0; i < len(numbersAndBytes); i += 2 {
		data := numbersAndBytes[i+1].([]byte)
		b = binary.AppendUvarint(b, uint64(numbersAndBytes[i].(int))<<3|lengthDelimited)
		b = append(binary.AppendUvarint(b, uint64(len(data))), data...)
	}
	return b
}

func marshalled(m interface{ Marshal() ([]byte, error) }) []byte {
	b, err := m.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

// What is taken for a whole list decides what is removed. So nothing else is.
func TestReadListRefuses(t *testing.T) {
	typed := func(version, kind string) []byte {
		return marshalled(&runtime.TypeMeta{APIVersion: version, Kind: kind})
	}
	right := typed("v1", "ServiceList")
	five := int64(5)
	meta := func(m metav1.ListMeta) []byte { return marshalled(&m) }
	version := meta(metav1.ListMeta{ResourceVersion: "7"})
	web := service("web", "10.43.0.1", nil)
	web.ResourceVersion = "5"
	item := func(change func(*corev1.Service)) []byte {
		s := web.DeepCopy()
		change(s)
		return message(listMeta, version, listItems, marshalled(s))
	}
	empty := message(listMeta, version)
	wrapped := func(typeMeta, raw []byte) []byte { return message(unknownTypeMeta, typeMeta, unknownRaw, raw) }
	tests := []struct {
		name string
		data []byte // after the magic
		want error
	}{
		{"an empty list", wrapped(right, empty), nil},
		{"metadata after the items", wrapped(right, message(listItems, marshalled(web), listMeta, version)), nil},
		{"a list in protobuf encoding, as it says", append(wrapped(right, empty), message(3, []byte{}, 4, []byte(runtime.ContentTypeProtobuf))...), nil},
		{"fields of later versions", append(wrapped(right, append(empty, message(9, []byte("new"))...)), message(9, []byte("new"))...), nil},
		{"nothing", nil, errJunk},
		{"a message without fields", wrapped(right, nil), errJunk},
		{"no metadata", wrapped(right, message(listItems, marshalled(web))), errJunk},
		{"empty metadata", wrapped(right, message(listMeta, []byte{})), errJunk},
		{"no resourceVersion", wrapped(right, message(listMeta, meta(metav1.ListMeta{Continue: "more"}))), errJunk},
		{"the resourceVersion 0", wrapped(right, message(listMeta, meta(metav1.ListMeta{ResourceVersion: "0"}))), errJunk},
		{"two metadata", wrapped(right, append(message(listMeta, version), message(listMeta, version)...)), errJunk},
		{"objects that are left out", wrapped(right, message(listMeta, meta(metav1.ListMeta{ResourceVersion: "7", RemainingItemCount: &five}))), errJunk},
		{"a page, with more to come", wrapped(right, message(listMeta, meta(metav1.ListMeta{ResourceVersion: "7", Continue: "more", RemainingItemCount: &five}))), nil},
		{"another kind", wrapped(typed("v1", "PodList"), empty), errJunk},
		{"another group", wrapped(typed("serving.knative.dev/v1", "ServiceList"), empty), errJunk},
		{"no kind", wrapped(typed("v1", ""), empty), errJunk},
		{"no apiVersion", wrapped(typed("", "ServiceList"), empty), errJunk},
		{"a single object", wrapped(typed("v1", "Service"), marshalled(web)), errJunk},
		{"a Status", wrapped(typed("v1", "Status"), marshalled(&metav1.Status{Status: metav1.StatusSuccess})), errJunk},
		{"no TypeMeta", message(unknownRaw, empty), errJunk},
		{"TypeMeta alone", message(unknownTypeMeta, right), errJunk},
		{"TypeMeta after the list", message(unknownRaw, empty, unknownTypeMeta, right), errJunk},
		{"two TypeMetas", append(message(unknownTypeMeta, right), wrapped(right, empty)...), errJunk},
		{"two lists", append(wrapped(right, empty), message(unknownRaw, empty)...), errJunk},
		{"a compressed list", append(wrapped(right, empty), message(unknownContentEncoding, []byte("gzip"))...), errJunk},
		{"a list in JSON", append(wrapped(right, empty), message(unknownContentType, []byte("application/json"))...), errJunk},
		{"an object without a name", wrapped(right, item(func(s *corev1.Service) { s.Name = "" })), errJunk},
		{"an object of a longer name than there can be", wrapped(right, item(func(s *corev1.Service) { s.Name = strings.Repeat("x", maxName+1) })), errJunk},
		{"an object of a longer namespace than there can be", wrapped(right, item(func(s *corev1.Service) { s.Namespace = strings.Repeat("x", maxNamespace+1) })), errJunk},
		{"a Service without a namespace", wrapped(right, item(func(s *corev1.Service) { s.Namespace = "" })), errJunk},
		{"an object without a resourceVersion", wrapped(right, item(func(s *corev1.Service) { s.ResourceVersion = "" })), errJunk},
		{"an end between metadata and items", wrapped(right, append(empty, message(listItems, marshalled(web))...))[:len(wrapped(right, empty))], errBroke},
		{"an end within an item", wrapped(right, append(empty, message(listItems, marshalled(web))...))[:len(wrapped(right, empty))+10], errBroke},
		{"unknown fields without end", append(message(unknownTypeMeta, right), bytes.Repeat(message(9, make([]byte, maxObject/4)), 5)...), errJunk},
		{"too large a field", append(message(unknownTypeMeta, right), message(9, make([]byte, maxObject+1))...), errJunk},
		{"one unknown field without end", append(message(unknownTypeMeta, right), 9<<3|lengthDelimited, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), errJunk},
	}
	for _, tt := range tests {
		_, err := readList(bytes.NewReader(append([]byte(protobufMagic), tt.data...)), servicesKind, nothing)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
	}
}

// All lists that are asked for have a kind, of the version that they are asked for in.
func TestListKinds(t *testing.T) {
	scheme := newScheme()
	var got []string
	for _, r := range resources("pi") {
		want := r.list()
		got = append(got, want.meta.APIVersion+" "+want.meta.Kind)
		gvks, _, err := scheme.ObjectKinds(r.object)
		if err != nil || want.item != reflect.TypeOf(r.object) {
			t.Errorf("%s: %v, items %v", r.name, err, want.item)
			continue
		}
		if gvk := gvks[0]; want.meta.Kind != gvk.Kind+"List" || want.meta.APIVersion != gvk.GroupVersion().String() {
			t.Errorf("%s: %+v, want that of %v", r.name, want.meta, gvk)
		}
	}
	if want := []string{"v1 ServiceList", "discovery.k8s.io/v1 EndpointSliceList", "v1 NodeList", "networking.k8s.io/v1 ServiceCIDRList"}; !slices.Equal(got, want) {
		t.Errorf("kinds %q, want %q", got, want)
	}
}

// FuzzReadList: whatever a server sends is read without a panic, and what is taken for a list has a version.
func FuzzReadList(f *testing.F) {
	whole := encodedList(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x12\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readList(bytes.NewReader(data), servicesKind, func(obj runtime.Object) error {
			if s := obj.(*corev1.Service); s.Name == "" || s.Namespace == "" || s.ResourceVersion == "" {
				panic(fmt.Sprintf("handed over: %q in %q at %q", s.Name, s.Namespace, s.ResourceVersion))
			}
			return nil
		})
		if err == nil && (!isVersion(list.ResourceVersion) || !bytes.Contains(data, []byte("ServiceList"))) {
			t.Errorf("taken for a list of version %q: %q", list.ResourceVersion, data)
		}
	})
}
