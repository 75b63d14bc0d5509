package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice/agent/source"
)

// encodedAnswer is what the server answers to a list.
func (r *rig) encodedAnswer(req *http.Request) []byte {
	whole := httptest.NewRecorder()
	r.api.serveList(whole, req, req.URL.Query())
	return whole.Body.Bytes()
}

// A list that does not come to its end, as on a network that is too slow for what a server gives one answer, is read in pages
// until they are whole, in smaller ones if need be.
func TestPages(t *testing.T) {
	t.Parallel()
	const n = 2*pageSize + 1
	tests := []struct {
		name string
		end  func(req *http.Request) // after half of the answer
	}{
		{"the connection breaks", func(*http.Request) { panic(http.ErrAbortHandler) }},
		{"the answer ends too soon", func(*http.Request) {}},
		{"nothing more comes", func(req *http.Request) { <-req.Context().Done() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for i := range n {
				r.api.put(slice(fmt.Sprintf("web-%03d", i), ofWeb))
			}
			var paged atomic.Int64
			r.api.misbehave(func(w http.ResponseWriter, req *http.Request) bool {
				q := req.URL.Query()
				if req.URL.Path != slicesPath || q.Has("watch") {
					return false
				}
				if q.Has("limit") {
					switch n := paged.Add(1); { // what is no list says nothing about its length
					case n == 2:
						r.api.status(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "as the test wants it")
						return true
					case n == 3:
						body("text/html", "<html>Please log in</html>")(w, req)
						return true
					case n > 5:
						return false
					}
				}
				whole := r.encodedAnswer(req)
				w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
				_, _ = w.Write(whole[:len(whole)/2])
				w.(http.Flusher).Flush()
				tt.end(req)
				return true
			})
			r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
			l := defaultLimits
			l.list = time.Second
			r.startWith(l)
			r.eventually("synced", r.sink.isSynced)
			if got := len(r.sink.names()); got != n {
				t.Errorf("%d slices came, want %d", got, n)
			}
			var limits []string
			for _, req := range r.api.requestsNow() {
				if q := req.URL.Query(); req.URL.Path == slicesPath && !q.Has("watch") {
					limits = append(limits, q.Get("limit"))
					if q.Has("resourceVersion") {
						t.Errorf("asked for %v", req.URL)
					}
				}
			}
			want := " 200 100 100 100 50" + strings.Repeat(" 25", (n+minPageSize-1)/minPageSize)
			if got := strings.Join(limits, " "); got != want {
				t.Errorf("asked for pages of %q, want %q", got, want)
			}
			for _, b := range r.sink.batches {
				if b > batchSize {
					t.Errorf("a batch of %d changes, want at most %d", b, batchSize)
				}
			}
			r.api.misbehave(nil)
			r.readAnew()
			if asked := r.api.asked(slicesPath, "!watch", "limit="); asked != 2 {
				t.Errorf("%d lists were asked for as a whole, want a second one after the pages came to their end", asked)
			}
		})
	}
}

// readAnew makes the server forget what was before, so that lists are read anew.
func (r *rig) readAnew() {
	r.Helper()
	before := r.sink.replacements(source.EndpointSlice)
	r.hangUp()
	r.api.put(node("other"))
	r.api.with(func() { r.api.oldest = r.api.version })
	r.listen(r.ca.valid(r.T, "kube-apiserver"))
	r.eventually("another list", func() bool { return r.sink.replacements(source.EndpointSlice) > before })
}

// On a slow network one large object comes for longer than nothing may come.
func TestSlowList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.api.misbehave(about(servicesPath, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Has("watch") {
			<-req.Context().Done()
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		for rest := r.encodedAnswer(req); len(rest) > 0; rest = rest[1:] {
			_, _ = w.Write(rest[:1])
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	l := defaultLimits
	l.list = 500 * time.Millisecond
	r.startWith(l)
	r.eventually("synced", r.sink.isSynced)
	if n := r.api.asked(servicesPath, "!watch"); n != 1 {
		t.Errorf("Services were asked for %d times, want once", n)
	}
	if lines := r.logs.Matching("WARN", "is not complete after 1s"); len(lines) != 1 {
		t.Errorf("log: %q, want one line that the list is slow", lines)
	}
	r.eventually("no problem", func() bool { return r.sink.reasons() == "" })
}

// A list that goes on for ever is given up.
func TestEndlessList(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter, r *rig, name, next string) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		web := service(name, "10.43.0.10", nil)
		web.ResourceVersion = "101"
		_, _ = w.Write(r.api.encode(&corev1.ServiceList{
			ListMeta: metav1.ListMeta{ResourceVersion: "200", Continue: next}, Items: []corev1.Service{*web},
		}))
	}
	tests := []struct {
		name string
		list func(r *rig, w http.ResponseWriter, req *http.Request)
		want string
	}{
		{"the same page under ever new names", func(r *rig, w http.ResponseWriter, req *http.Request) {
			next, _ := strconv.Atoi(req.URL.Query().Get("continue"))
			page(w, r, "web", strconv.Itoa(next+1))
		}, "have no end"},
		{"one more object in each page", func(r *rig, w http.ResponseWriter, req *http.Request) {
			next, _ := strconv.Atoi(req.URL.Query().Get("continue"))
			page(w, r, fmt.Sprint("web-", next), strconv.Itoa(next+1))
		}, "have no end"},
		{"two pages in turn", func(r *rig, w http.ResponseWriter, req *http.Request) {
			next := "a"
			if req.URL.Query().Get("continue") == "a" {
				next = "b"
			}
			page(w, r, "web", next)
		}, "have no end"},
		{"an answer that drips", func(r *rig, w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(r.encodedAnswer(req))
			for req.Context().Err() == nil {
				_, _ = w.Write([]byte{9<<3 | lengthDelimited, 0})
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, "was not complete after 2s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.api.put(some()...)
			r.api.misbehave(about(servicesPath, func(w http.ResponseWriter, req *http.Request) { tt.list(r, w, req) }))
			r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
			l := defaultLimits
			l.answer, l.pages = 2*time.Second, 2*time.Second
			r.startWith(l)
			r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), tt.want) })
			if r.sink.isSynced() || r.sink.replacements(source.Service) > 0 {
				t.Error("it is taken for a whole list")
			}
			r.api.misbehave(nil)
			r.eventually("synced", r.sink.isSynced)
			r.has(someNames...)
		})
	}
}
