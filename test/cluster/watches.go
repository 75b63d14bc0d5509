package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Paths of the collections that Send knows.
const (
	ServicesPath = "/api/v1/services"
	SlicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
)

var errWatchEnded = errors.New("the watch has ended")

// openWatch is a watch that passes through.
type openWatch struct {
	path string
	end  context.CancelFunc

	mu sync.Mutex          // of one event at a time
	w  http.ResponseWriter // nil when it has ended
	// madeUp: events of Send came, and the server's do not any more.
	madeUp bool
}

func (o *openWatch) send(frames []byte, madeUp bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w == nil {
		return errWatchEnded
	}
	if o.madeUp = o.madeUp || madeUp; o.madeUp && !madeUp {
		return nil
	}
	_, err := o.w.Write(frames)
	if err == nil {
		err = http.NewResponseController(o.w).Flush()
	}
	return err
}

// begin opens a watch.
func (b *Between) begin(w http.ResponseWriter, r *http.Request, end context.CancelFunc) *openWatch {
	o := &openWatch{path: r.URL.Path, end: end, w: w}
	_ = o.send(nil, false) // the header; who is gone will be noticed
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watches[o] = struct{}{}
	return o
}

func (b *Between) end(o *openWatch) {
	b.mu.Lock()
	delete(b.watches, o)
	b.mu.Unlock()
	o.mu.Lock() // who sends is done
	defer o.mu.Unlock()
	o.w = nil
}

// Hold answers a request for a watch in place of the server: what is sent in it comes from Send alone. It lasts as long as it was asked for.
func (b *Between) Hold(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		seconds = 60
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	w.WriteHeader(http.StatusOK)
	defer b.end(b.begin(w, r, cancel))
	<-ctx.Done()
}

// relay passes the events of a watch on, each as a whole, so that others can be sent between them.
func (b *Between) relay(w http.ResponseWriter, r *http.Request, body io.Reader, end context.CancelFunc) {
	o := b.begin(w, r, end)
	defer b.end(o)
	var head [4]byte
	for {
		if _, err := io.ReadFull(body, head[:]); err != nil {
			return
		}
		frame := make([]byte, len(head)+int(binary.BigEndian.Uint32(head[:])))
		copy(frame, head[:])
		if _, err := io.ReadFull(body, frame[len(head):]); err != nil || o.send(frame, false) != nil {
			return
		}
	}
}

// open are the watches of a collection, of all if path is empty.
func (b *Between) open(path string) (all []*openWatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o := range b.watches {
		if path == "" || o.path == path {
			all = append(all, o)
		}
	}
	return all
}

// Watches counts those that are open.
func (b *Between) Watches() int { return len(b.open("")) }

// EndWatches ends all watches, as a server does when their time is over.
func (b *Between) EndWatches() {
	for _, o := range b.open("") {
		o.end()
	}
}

// Send puts events into all open watches of a collection, as if the server had sent them, and tells into how many. It returns when
// the connection has taken them. Of the server's own events nothing comes through these watches any more: their versions would not fit.
func (b *Between) Send(path string, frames []byte) (watches int, err error) {
	for _, o := range b.open(path) {
		if err := o.send(frames, true); err != nil {
			return watches, err
		}
		watches++
	}
	return watches, nil
}

// Encode writes an object as the server sends it.
func Encode(obj Object) []byte {
	raw := must(obj.(interface{ Marshal() ([]byte, error) }).Marshal())
	kind := runtime.TypeMeta{APIVersion: "v1", Kind: "Service"}
	switch obj.(type) {
	case *discoveryv1.EndpointSlice:
		kind = runtime.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	case *corev1.Node:
		kind.Kind = "Node"
	}
	unknown := runtime.Unknown{TypeMeta: kind, Raw: raw}
	return append([]byte("k8s\x00"), must(unknown.Marshal())...)
}

// Event writes an event of a watch.
func Event(kind watch.EventType, obj Object) []byte {
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: Encode(obj)}}
	return Frame(must(event.Marshal()))
}

// Frame puts the length before what a watch sends.
func Frame(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// must is for what cannot fail: generated code that writes into memory.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
