package kube

import (
	"encoding/binary"
	"fmt"
	"io"
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// maxBody bounds what is read of an answer that is neither a list nor a watch, in bytes: client-go
// reads it as a whole. A Status has some hundred bytes.
const maxBody = 64 << 10

// watchKey is the key of a context's *error, where a guard puts the error of the request. A watch's
// context has it.
type watchKey struct{}

// guard notes errors of the network, and bounds what client-go would read without end.
type guard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(req)
	lost, isWatch := req.Context().Value(watchKey{}).(*error)
	switch {
	case err != nil:
	case req.Method != http.MethodGet || resp.StatusCode != http.StatusOK:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxBody), resp.Body}
	case isWatch:
		// A JSON object of a stream would be read to its end, however far that is.
		contentType := resp.Header.Get("Content-Type")
		if kind, _, _ := mime.ParseMediaType(contentType); kind != runtime.ContentTypeProtobuf {
			resp.Body.Close()
			resp, err = nil, fmt.Errorf("%w: it is %.100q in place of %s", errJunk, contentType, runtime.ContentTypeProtobuf)
			break
		}
		resp.Body = &frameGuard{ReadCloser: resp.Body}
	}
	if err != nil && isWatch {
		*lost = err
	}
	return resp, err
}

// WrappedRoundTripper lets CloseIdleConnections reach the transport.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// frameGuard is a watch's stream of frames. Each begins with its length, as 4 bytes in big-endian order. It ends with an error
// before one that is too long. client-go's reader would take 16 MiB, and panic at a length of 2 GiB where an int has 32 bits.
type frameGuard struct {
	io.ReadCloser
	head [4]byte
	have int    // bytes of head
	left uint32 // bytes of the frame
	err  error
}

// Read implements io.Reader.
func (r *frameGuard) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.ReadCloser.Read(p)
	for b := p[:n]; len(b) > 0; {
		if r.left > 0 {
			passed := min(uint32(len(b)), r.left)
			r.left, b = r.left-passed, b[passed:]
			continue
		}
		r.head[r.have], b = b[0], b[1:]
		if r.have++; r.have < len(r.head) {
			continue
		}
		r.have, r.left = 0, binary.BigEndian.Uint32(r.head[:])
		if r.left > maxObject {
			r.err = fmt.Errorf("%w: an event of %d bytes, more than %d", errJunk, r.left, maxObject)
			return 0, r.err
		}
	}
	return n, err
}
