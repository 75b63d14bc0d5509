package kube

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// lengthDelimited is the only wire type that is read
	// (https://protobuf.dev/programming-guides/encoding/#structure).
	lengthDelimited = 2
	// maxObject bounds one object in bytes: the server takes requests of 3 MiB (MaxRequestBodyBytes), and etcd 1.5 MiB.
	maxObject = 8 << 20
)

// protobufObject is an object with Kubernetes' generated code.
type protobufObject interface{ Unmarshal([]byte) error }

// listReader reads a protobuf message field by field.
type listReader struct {
	in      *bufio.Reader
	buf     []byte // of one field, used again for the next
	skipped int64  // bytes of fields that are not known
	// short is the error if it ends too soon.
	short error
}

// field reads the head of a field: its number, and how many bytes follow. The error is io.EOF if
// there is none.
func (r *listReader) field() (number uint64, size int64, err error) {
	if _, err := r.in.Peek(1); err != nil {
		return 0, 0, err
	}
	tag, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, 0, r.varint(err)
	}
	if tag&7 != lengthDelimited {
		return 0, 0, fmt.Errorf("%w: field %d of a list has wire type %d", errJunk, tag>>3, tag&7)
	}
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, 0, r.varint(err)
	}
	if int64(n) < 0 {
		return 0, 0, fmt.Errorf("%w: field %d of a list has %d bytes", errJunk, tag>>3, n)
	}
	return tag >> 3, int64(n), nil
}

// decode reads a message of size bytes.
func (r *listReader) decode(size int64, into protobufObject) error {
	b, err := r.bytes(size)
	if err != nil {
		return err
	}
	if err := into.Unmarshal(b); err != nil {
		return fmt.Errorf("%w: %w", errJunk, err)
	}
	return nil
}

// bytes reads size bytes. They are valid until the next are read.
func (r *listReader) bytes(size int64) ([]byte, error) {
	if size > maxObject {
		return nil, fmt.Errorf("%w: an object of %d bytes, more than %d", errJunk, size, maxObject)
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size, size+size/2)
	}
	r.buf = r.buf[:size]
	_, err := io.ReadFull(r.in, r.buf)
	return r.buf, r.tooShort(err)
}

// skip reads over what is not known. There is an end to that.
func (r *listReader) skip(size int64) error {
	if r.skipped += size + 1; size > maxObject || r.skipped > maxObject {
		return fmt.Errorf("%w: more than %d bytes of it are unknown", errJunk, maxObject)
	}
	_, err := io.CopyN(io.Discard, r.in, size)
	return r.tooShort(err)
}

// varint says what is wrong with a number.
func (r *listReader) varint(err error) error {
	if err = r.tooShort(err); errors.Is(err, r.short) || errors.Is(err, errBroke) {
		return err
	}
	return fmt.Errorf("%w: %w", errJunk, err)
}

// tooShort says of the end of the data that something should have followed.
func (r *listReader) tooShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends too soon", r.short)
	}
	return err
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
