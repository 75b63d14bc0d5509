package kube

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// protobufMagic is what every object in Kubernetes' protobuf encoding begins with
	// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
	protobufMagic = "k8s\x00"
	// Fields of runtime.Unknown (k8s.io/apimachinery/pkg/runtime/generated.proto).
	unknownTypeMeta, unknownRaw, unknownContentEncoding, unknownContentType = 1, 2, 3, 4
	// Fields that all lists have (generated.proto of each group).
	listMeta, listItems = 1, 2
	// headBuffer is for what comes before the list; larger reads pass by it.
	headBuffer = 512
	listBuffer = 64 << 10
)

var (
	// errJunk: the answer came and is none.
	errJunk = errors.New("cannot decode the answer")
	// errBroke: the network, or the server, broke the answer off.
	errBroke = errors.New("the list broke off")
)

// listKind says which list is wanted.
type listKind struct {
	item reflect.Type     // of a pointer to one of its objects
	meta runtime.TypeMeta // the list's own
}

// readList decodes a list and hands each item to each as it comes, so that the list is never held
// as a whole, be it sent in pages or not. In place of one that is too large it hands an *oversized over. It returns the list's metadata.
//
// What is missing in a list that was read whole is removed. So an error is all that is not
// beyond doubt such a list, from its begin to the end of the answer.
func readList(in io.Reader, want listKind, each func(runtime.Object) error) (meta metav1.ListMeta, err error) {
	r := listReader{in: bufio.NewReaderSize(networkReader{in}, headBuffer), short: errJunk}
	if magic, err := r.in.Peek(len(protobufMagic)); err != nil || string(magic) != protobufMagic {
		if errors.Is(err, errBroke) {
			return meta, err
		}
		begin, _ := r.in.Peek(min(r.in.Buffered(), maxReason))
		return meta, fmt.Errorf("%w: it is not in protobuf encoding: %q", errJunk, begin)
	}
	_, _ = r.in.Discard(len(protobufMagic))
	var typed, read bool
	for {
		field, size, err := r.field()
		if errors.Is(err, io.EOF) && read {
			return meta, nil
		}
		if err != nil {
			return meta, r.tooShort(err)
		}
		switch {
		case field == unknownTypeMeta && !typed:
			err, typed = r.typeMeta(size, want.meta), true
		case field == unknownRaw && typed && !read:
			meta, err = r.list(size, want.item, each)
			read = true
		case field == unknownTypeMeta, field == unknownRaw:
			// The kind comes first, so that nothing is handed over of another one.
			err = fmt.Errorf("%w: a list without its kind, or a second one", errJunk)
		case field == unknownContentEncoding, field == unknownContentType:
			err = r.plain(size)
		default:
			err = r.skip(size)
		}
		if err != nil {
			return meta, err
		}
	}
}

// typeMeta reads which kind of list it is.
func (r *listReader) typeMeta(size int64, want runtime.TypeMeta) error {
	var t runtime.TypeMeta
	if err := r.decode(size, &t); err != nil {
		return err
	}
	if t.Kind != want.Kind || t.APIVersion != want.APIVersion {
		return fmt.Errorf("%w: a %q of %q in place of a %s of %s", errJunk, t.Kind, t.APIVersion, want.Kind, want.APIVersion)
	}
	return nil
}

// plain reads how the list is encoded: without more words it is in protobuf encoding.
func (r *listReader) plain(size int64) error {
	text, err := r.bytes(size)
	if err == nil && len(text) > 0 && string(text) != runtime.ContentTypeProtobuf {
		err = fmt.Errorf("%w: a list that is encoded as %.100q", errJunk, text)
	}
	return err
}

// list reads the list itself, which has size bytes.
func (r *listReader) list(size int64, item reflect.Type, each func(runtime.Object) error) (meta metav1.ListMeta, err error) {
	whole := &io.LimitedReader{R: r.in, N: size}
	inner := listReader{in: bufio.NewReaderSize(whole, listBuffer), short: errBroke}
	described := false
	for {
		field, size, err := inner.field()
		if errors.Is(err, io.EOF) && whole.N == 0 {
			return meta, checkListMeta(&meta)
		}
		if err != nil {
			return meta, inner.tooShort(err)
		}
		switch {
		case field == listMeta && !described:
			err, described = inner.decode(size, &meta), true
		case field == listMeta:
			err = fmt.Errorf("%w: a list with two metadata", errJunk)
		case field == listItems && size > maxObject:
			var o *oversized
			if o, err = skipOversized(inner.in, size, func(b []byte) []byte { return b }); err == nil {
				err = each(o)
			}
			err = inner.tooShort(err)
		case field == listItems:
			obj := reflect.New(item.Elem()).Interface().(runtime.Object)
			if err = inner.decode(size, obj.(protobufObject)); err == nil {
				err = checkObject(obj)
			}
			if err == nil {
				err = each(obj)
			}
		default:
			err = inner.skip(size)
		}
		if err != nil {
			return meta, err
		}
	}
}

// checkListMeta tells whether a list, or a page of one, is an API server's. Each has a version, and none leaves out what
// it says that it has.
func checkListMeta(m *metav1.ListMeta) error {
	if !isVersion(m.ResourceVersion) {
		return fmt.Errorf("%w: a list without a resourceVersion", errJunk)
	}
	if left := m.RemainingItemCount; m.Continue == "" && left != nil && *left > 0 {
		return fmt.Errorf("%w: a list that lacks %d of its objects", errJunk, *left)
	}
	return nil
}
