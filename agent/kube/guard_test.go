package kube

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/apimachinery/pkg/util/framer"
)

// A watch's frames pass as they are, but for those that are too long.
func TestFrameGuard(t *testing.T) {
	frames := func(sizes ...uint32) (b []byte) {
		for _, n := range sizes {
			b = append(binary.BigEndian.AppendUint32(b, n), strings.Repeat("x", int(min(n, 100)))...)
		}
		return b
	}
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"none", nil, io.EOF},
		{"some", frames(1, 0, 100, 7), io.EOF},
		{"the longest", frames(1, maxObject), io.ErrUnexpectedEOF},
		{"too long, and cut", frames(1, maxObject+1), io.ErrUnexpectedEOF},
		{"too long, and nobody knows what", append(frames(1, maxObject+1), make([]byte, maxObject+1-100)...), errJunk},
		{"2 GiB, negative where an int has 32 bits", frames(1, 1<<31), errJunk},
		{"4 GiB", frames(1, 1<<32-1), errJunk},
	}
	for _, tt := range tests {
		for _, in := range []io.Reader{bytes.NewReader(tt.data), iotest.OneByteReader(bytes.NewReader(tt.data))} {
			guarded := framer.NewLengthDelimitedFrameReader(&frameGuard{ReadCloser: io.NopCloser(in)})
			var err error
			for frame := make([]byte, maxObject); err == nil; {
				_, err = guarded.Read(frame)
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
			}
		}
		if passed, err := io.ReadAll(&frameGuard{ReadCloser: io.NopCloser(bytes.NewReader(tt.data))}); err == nil && !bytes.Equal(passed, tt.data) {
			t.Errorf("%s: %q is read of %q", tt.name, passed, tt.data)
		}
	}
}
