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

// watchKey is the key of a context's *watchRequest. A watch's context has it.
type watchKey struct{}

// watchRequest is what a guard tells of the request for a watch.
type watchRequest struct {
	// lost is the error of the request.
	lost error
	// refused is told which objects are too large.
	refused func(*oversized)
}

// guard notes errors of the network, and bounds what client-go would read without end.
type guard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(req)
	of, isWatch := req.Context().Value(watchKey{}).(*watchRequest)
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
		resp.Body = &frameGuard{ReadCloser: resp.Body, refused: of.refused}
	}
	if err != nil && isWatch {
		of.lost = err
	}
	return resp, err
}

// WrappedRoundTripper lets CloseIdleConnections reach the transport.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// frameGuard is a watch's stream of frames. Each begins with its length, as 4 bytes in big-endian order. Those that are too long do not
// pass: client-go's reader would take 16 MiB, and panic at a length of 2 GiB where an int has 32 bits.
type frameGuard struct {
	io.ReadCloser
	refused func(*oversized) // is told what did not pass
	head    [4]byte
	have    int    // bytes of head that were read
	passed  int    // bytes of head that were handed on
	left    uint32 // bytes of the frame
	err     error
}

// Read implements io.Reader.
func (r *frameGuard) Read(p []byte) (n int, err error) {
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if r.left > 0 && r.passed == len(r.head) {
		n, r.err = r.ReadCloser.Read(p[:min(len(p), int(r.left))])
		r.left -= uint32(n)
		return n, r.err
	}
	if r.passed == len(r.head) {
		r.have, r.passed = 0, 0
	}
	for r.have < len(r.head) {
		n, r.err = r.ReadCloser.Read(r.head[r.have:])
		if r.have += n; r.have == len(r.head) {
			if r.left = binary.BigEndian.Uint32(r.head[:]); r.left > maxObject {
				if r.err = r.skip(); r.err != nil {
					return 0, r.err
				}
			}
		}
		if r.err != nil && r.have < len(r.head) {
			n = copy(p, r.head[:r.have]) // the stream ends here; the reader will say what that means
			return n, r.err
		}
	}
	n = copy(p, r.head[r.passed:])
	r.passed += n
	return n, nil
}

// skip reads over a frame that is too long, up to the length of the next one.
func (r *frameGuard) skip() error {
	o, err := skipOversized(r.ReadCloser, int64(r.left), ofEvent)
	r.have, r.left = 0, 0
	if err == nil && r.refused != nil {
		r.refused(o)
	}
	return err
}
