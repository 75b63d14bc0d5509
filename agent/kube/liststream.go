package kube

import (
	"bufio"
	"encoding/binary"
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
	unknownTypeMeta, unknownRaw = 1, 2
	// Fields that all lists have (generated.proto of each group).
	listMeta, listItems = 1, 2
	// lengthDelimited is the only wire type in them that is read.
	lengthDelimited = 2
	// maxObject bounds one object: the server takes requests of 3 MiB (MaxRequestBodyBytes), and etcd 1.5 MiB.
	maxObject = 8 << 20
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

// protobufObject is an object with Kubernetes' generated code.
type protobufObject interface{ Unmarshal([]byte) error }

// listReader reads a list object by object as it comes, so that it is never held as a whole,
// be it sent in pages or not.
type listReader struct {
	in  *bufio.Reader
	buf []byte // of one object, used again for the next
}

// readList decodes a list of the items' type and hands each item to each. It returns
// the list's metadata.
func readList(in io.Reader, item reflect.Type, each func(runtime.Object) error) (meta metav1.ListMeta, err error) {
	r := listReader{in: bufio.NewReaderSize(networkReader{in}, headBuffer)}
	if magic, err := r.in.Peek(len(protobufMagic)); err != nil || string(magic) != protobufMagic {
		if errors.Is(err, errBroke) {
			return meta, err
		}
		begin, _ := r.in.Peek(min(r.in.Buffered(), maxReason))
		return meta, fmt.Errorf("%w: it is not in protobuf encoding: %q", errJunk, begin)
	}
	_, _ = r.in.Discard(len(protobufMagic))
	for {
		field, size, err := r.field()
		if errors.Is(err, io.EOF) {
			return meta, short(err) // without a list
		}
		if err != nil {
			return meta, err
		}
		switch field {
		case unknownTypeMeta:
			var t runtime.TypeMeta
			if err := r.decode(size, &t); err != nil {
				return meta, err
			}
			if want := item.Elem().Name() + "List"; t.Kind != want {
				return meta, fmt.Errorf("%w: a %q in place of a %s", errJunk, t.Kind, want)
			}
		case unknownRaw:
			// Nothing that matters comes after the list.
			return r.list(size, item, each)
		default:
			if err := r.skip(size); err != nil {
				return meta, err
			}
		}
	}
}

// list reads the list itself, which has size bytes.
func (r *listReader) list(size int64, item reflect.Type, each func(runtime.Object) error) (meta metav1.ListMeta, err error) {
	whole := &io.LimitedReader{R: r.in, N: size}
	inner := listReader{in: bufio.NewReaderSize(whole, listBuffer)}
	for {
		field, size, err := inner.field()
		if errors.Is(err, io.EOF) && whole.N == 0 {
			return meta, nil
		}
		if errors.Is(err, io.EOF) {
			return meta, short(err)
		}
		if err != nil {
			return meta, err
		}
		switch field {
		case listMeta:
			err = inner.decode(size, &meta)
		case listItems:
			obj := reflect.New(item.Elem()).Interface().(runtime.Object)
			if err = inner.decode(size, obj.(protobufObject)); err == nil {
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

// field reads the head of a field: its number, and how many bytes follow. The error is io.EOF if
// there is none.
func (r *listReader) field() (number uint64, size int64, err error) {
	if _, err := r.in.Peek(1); errors.Is(err, io.EOF) {
		return 0, 0, io.EOF
	}
	tag, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, 0, short(err)
	}
	if tag&7 != lengthDelimited {
		return 0, 0, fmt.Errorf("%w: field %d of a list has wire type %d", errJunk, tag>>3, tag&7)
	}
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, 0, short(err)
	}
	if int64(n) < 0 {
		return 0, 0, fmt.Errorf("%w: field %d of a list has %d bytes", errJunk, tag>>3, n)
	}
	return tag >> 3, int64(n), nil
}

// decode reads a message of size bytes.
func (r *listReader) decode(size int64, into protobufObject) error {
	if size > maxObject {
		return fmt.Errorf("%w: an object of %d bytes, more than %d", errJunk, size, maxObject)
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size, size+size/2)
	}
	r.buf = r.buf[:size]
	if _, err := io.ReadFull(r.in, r.buf); err != nil {
		return short(err)
	}
	if err := into.Unmarshal(r.buf); err != nil {
		return fmt.Errorf("%w: %w", errJunk, err)
	}
	return nil
}

func (r *listReader) skip(size int64) error {
	_, err := io.CopyN(io.Discard, r.in, size)
	return short(err)
}

// networkReader tells errors of the network from the end of what the server had to send.
type networkReader struct{ io.Reader }

// Read implements io.Reader.
func (r networkReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", errBroke, err)
	}
	return n, err
}

// short says of the end of the data that something should have followed.
func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends too soon", errJunk)
	}
	return err
}
