package kube

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice/agent/source"
)

// headSize is how much of an object is read to learn its name, in bytes. Its metadata comes first and begins with the name.
const headSize = 4 << 10

// oversized stands for an object of more than maxObject bytes. Nothing but its name is read: what was known of it before stays.
type oversized struct {
	source.Name
	size int64
}

// GetObjectKind implements runtime.Object.
func (*oversized) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes one.
func (o *oversized) DeepCopyObject() runtime.Object { return o }

// Size is that of its encoding.
func (o *oversized) Size() int { return int(o.size) }

// tooLargeObject is what the log says of one, and docs/install.md.
const tooLargeObject = "an object is left out: it is too large; what was known of it before stays"

// tell writes into the log what is left out.
func (o *oversized) tell(log *slog.Logger, kind source.Kind) {
	log.Warn(tooLargeObject, "kind", string(kind), "namespace", o.Namespace, "name", o.Name.Name, "bytes", o.size, "limit", maxObject)
}

// skipOversized reads an object of size bytes, or what has one at the place that head finds, and keeps its name.
func skipOversized(in io.Reader, size int64, head func([]byte) []byte) (*oversized, error) {
	if size > maxListBytes {
		return nil, fmt.Errorf("%w: an object of %d bytes, more than %d", errJunk, size, maxObject)
	}
	begin := make([]byte, min(size, headSize))
	if _, err := io.ReadFull(in, begin); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	o := &oversized{size: size}
	meta := field(head(begin), 1) // ObjectMeta, of generated.proto
	o.Name = source.Name{Namespace: string(field(meta, 3)), Name: string(field(meta, 1))}
	if o.Name.Name == "" || len(o.Name.Name) > maxName || len(o.Namespace) > maxNamespace {
		return nil, fmt.Errorf("%w: an object of %d bytes, more than %d, without a name", errJunk, size, maxObject)
	}
	_, err := io.CopyN(io.Discard, in, size-int64(len(begin)))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return o, err
}

// ofEvent finds the object in an event of a watch: in metav1.WatchEvent, RawExtension and runtime.Unknown.
func ofEvent(b []byte) []byte {
	raw := field(field(b, 2), 1)
	if len(raw) < len(protobufMagic) {
		return nil
	}
	return field(raw[len(protobufMagic):], unknownRaw)
}

// field returns what the first field of a number has, as far as it is there, of a message that has nothing but strings and messages
// until then; nil if there is none.
func field(b []byte, number uint64) []byte {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag&7 != lengthDelimited {
			return nil
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 {
			return nil
		}
		b = b[n:]
		here := min(size, uint64(len(b)))
		if tag>>3 == number {
			return b[:here]
		}
		b = b[here:]
	}
	return nil
}
