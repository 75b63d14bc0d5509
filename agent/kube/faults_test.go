package kube

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/source"
)

type answer = func(http.ResponseWriter, *http.Request) bool

// always answers every request about objects in the same way.
func always(do func(http.ResponseWriter, *http.Request)) answer {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		do(w, r)
		return true
	}
}

// about answers requests about one collection.
func about(path string, do func(http.ResponseWriter, *http.Request)) answer {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		do(w, r)
		return true
	}
}

// body answers with a page.
func body(contentType, text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	status := func(code int, reason metav1.StatusReason) func(r *rig) answer {
		return func(r *rig) answer {
			return always(func(w http.ResponseWriter, _ *http.Request) {
				r.api.status(w, code, reason, "as the\x1b[2J test wants it")
			})
		}
	}
	plain := func(a answer) func(*rig) answer { return func(*rig) answer { return a } }
	const protobufStream = runtime.ContentTypeProtobuf + ";stream=watch"
	tests := []struct {
		name  string
		fault func(r *rig) answer
		want  string // in the one problem
	}{
		{"401", status(401, metav1.StatusReasonUnauthorized), "does not accept the kubeconfig's credentials (401)"},
		{"403 for one collection", func(r *rig) answer {
			return about(servicesPath, func(w http.ResponseWriter, _ *http.Request) {
				r.api.status(w, 403, metav1.StatusReasonForbidden, "services is forbidden")
			})
		}, "services: the user may not list and watch this (403)"},
		{"403 for all", status(403, metav1.StatusReasonForbidden), "endpointslices, nodes, servicecidrs, services: the user may not list and watch this (403)"},
		{"404 for Services", plain(about(servicesPath, http.NotFound)), "services: the server does not have this (404)"},
		{"429", plain(always(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		})), "answers 429 (Too Many Requests)"},
		{"500", status(500, metav1.StatusReasonInternalError), "answers 500 (Internal Server Error): as the?[2J test wants it"},
		{"503 without a Status", plain(always(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "starting up", http.StatusServiceUnavailable)
		})), "answers 503 (Service Unavailable)"},
		{"a page of HTML", plain(always(body("text/html", "<html>Please log in</html>"))), "not an API server's"},
		{"JSON of another kind", plain(always(body("application/json", `{"kind":"PodList","apiVersion":"v1","items":[]}`))), "not an API server's"},
		{"JSON that is none", plain(always(body("application/json", "{]"))), "not an API server's"},
		{"junk in place of protobuf", plain(always(body(runtime.ContentTypeProtobuf, "k8s\x00\xff\xff\xff\xff\xff"))), "not an API server's"},
		{"an empty answer", plain(always(body(runtime.ContentTypeProtobuf, ""))), "not an API server's"},
		{"another collection's list", func(r *rig) answer {
			return r.relists(func(w http.ResponseWriter, req *http.Request) {
				u := *req.URL
				u.Path = slicesPath
				r.api.serveList(w, &http.Request{URL: &u}, u.Query())
			})
		}, "not an API server's"},
		{"a list without metadata", func(r *rig) answer {
			return r.relists(body(runtime.ContentTypeProtobuf, string(r.api.encode(&corev1.ServiceList{}))))
		}, "not an API server's"},
		{"another group's list", func(r *rig) answer {
			list := r.api.encode(&corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "200"}})
			return r.relists(body(runtime.ContentTypeProtobuf, strings.Replace(string(list), "v1", "v2", 1)))
		}, "not an API server's"},
		{"a Status in place of a list", func(r *rig) answer {
			return r.relists(func(w http.ResponseWriter, _ *http.Request) { r.api.status(w, 200, "", "") })
		}, "not an API server's"},
		{"a page that is followed by itself", func(r *rig) answer {
			return r.relists(body(runtime.ContentTypeProtobuf, string(r.api.encode(&corev1.ServiceList{
				ListMeta: metav1.ListMeta{ResourceVersion: "200", Continue: "here"},
			}))))
		}, "have no end"},
		{"500 without an end", plain(always(func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for req.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4<<10))
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		})), "answers 500 (Internal Server Error)"},
		{"302 to elsewhere", plain(always(func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://127.0.0.1:1/login", http.StatusFound)
		})), "answers 302 (Found)"},
		{"junk in watches alone", plain(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "true" {
				return false
			}
			body(protobufStream, "\x00\x00\x00\x02\x00\x00")(w, r)
			return true
		}), "not an API server's"},
		{"a watch in JSON", func(r *rig) answer {
			return r.watches(func(w http.ResponseWriter, _ *http.Request) {
				body("application/json", `{"type":"BOOKMARK","object":{"kind":"Service"`)(w, nil)
			})
		}, "application/json"},
		{"an event of 4 GiB", func(r *rig) answer {
			return r.watches(body(protobufStream, "\xff\xff\xff\xff"+strings.Repeat("x", 4096)))
		}, "an object of 4294967295 bytes"},
		{"a bookmark without a version", func(r *rig) answer {
			return r.watches(body(protobufStream, string(r.api.event(watch.Bookmark, &corev1.Service{}))))
		}, "without a resourceVersion"},
		{"an event of another kind", func(r *rig) answer {
			return r.watches(body(protobufStream, string(r.api.event(watch.Deleted, node("pi")))))
		}, "sends a *v1.Node"},
		{"an event of an object without a name", func(r *rig) answer {
			return r.watches(body(protobufStream, string(r.api.event(watch.Modified, &corev1.Service{}))))
		}, "of the name"},
		{"an event that is older than the list", func(r *rig) answer {
			old := service("web", "10.43.0.10", nil)
			old.ResourceVersion = "101"
			return r.watches(body(protobufStream, string(r.api.event(watch.Deleted, old))))
		}, "in another order than they happened"},
		{"watches that end at once", plain(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "true" {
				return false
			}
			body(protobufStream, "")(w, r)
			return true
		}), "the server closes the watch at once"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.api.put(some()...)
			r.startSynced()
			time.Sleep(time.Second)

			r.api.misbehave(tt.fault(r))
			r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), tt.want) })
			time.Sleep(5 * time.Second)
			if got := r.sink.names(); !slices.Equal(got, someNames) {
				t.Errorf("objects are now %q", got)
			}
			if got := r.logs.Matching("WARN"); len(got) != 1 || !strings.Contains(got[0], "began") {
				t.Errorf("log of the begin: %q, want one line", got)
			}
			if n := len(r.api.requestsNow()); n > 80 {
				t.Errorf("%d requests in some seconds: no pauses?", n)
			}

			r.api.misbehave(nil)
			r.api.put(service("db", "10.43.0.12", nil))
			r.has(append(someNames, "Service default/db@105")...)
			r.eventually("the end of the problem", func() bool { return r.sink.reasons() == "" })
			if got := r.logs.Matching("INFO", "ended"); len(got) != 1 {
				t.Errorf("log of the end: %q, want one line", got)
			}
			if got := r.logs.Matching("WARN"); len(got) != 1 {
				t.Errorf("problems in all: %q, want one", got)
			}
		})
	}
}

// relists answers with a list of Services in place of a watch's end, which makes that the list is read once more.
func (r *rig) relists(list func(http.ResponseWriter, *http.Request)) answer {
	return about(servicesPath, func(w http.ResponseWriter, req *http.Request) {
		switch q := req.URL.Query(); {
		case q.Get("watch") == "true":
			r.api.status(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		case q.Get("limit") == "1": // whether the server has older data
			r.api.serveList(w, req, q)
		default:
			list(w, req)
		}
	})
}

// watches answers watches of Services.
func (r *rig) watches(do func(http.ResponseWriter, *http.Request)) answer {
	return func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != servicesPath || req.URL.Query().Get("watch") != "true" {
			return false
		}
		do(w, req)
		return true
	}
}

// requestsNow returns the requests so far.
func (s *apiServer) requestsNow() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Faults that are met before a request.
func TestConnections(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	tests := []struct {
		name  string
		fault func(t *testing.T, r *rig) (mend func())
		want  string
	}{
		{"nobody listens", func(*testing.T, *rig) func() { return func() {} }, "cannot be reached: dial tcp"},
		{"connections are cut at once", func(t *testing.T, r *rig) func() {
			return r.talk(t, func(c net.Conn) {})
		}, "cannot be reached"},
		{"HTTP without TLS", func(t *testing.T, r *rig) func() {
			return r.talk(t, func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
		}, "does not speak TLS"},
		{"another authority", func(t *testing.T, r *rig) func() {
			r.listen(newAuthority(t).valid(t, "kube-apiserver"))
			return r.hangUp
		}, "not signed by the kubeconfig's certificate authority"},
		{"the server's certificate expired", func(t *testing.T, r *rig) func() {
			r.listen(r.ca.issue(t, "kube-apiserver", time.Now().Add(-2*hour), time.Now().Add(-hour)))
			return r.hangUp
		}, "is this machine's clock right?"},
		{"the server trusts another authority of clients", func(t *testing.T, r *rig) func() {
			mine := r.ca
			r.ca = newAuthority(t)
			r.listen(mine.valid(t, "kube-apiserver"))
			r.ca = mine
			return r.hangUp
		}, "the server refuses the client certificate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.api.put(some()...)
			r.startSynced()
			time.Sleep(time.Second)
			r.hangUp()
			mend := tt.fault(t, r)
			r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), tt.want) })
			time.Sleep(3 * time.Second)
			mend()
			r.listen(r.ca.valid(t, "kube-apiserver"))
			r.api.put(service("db", "10.43.0.12", nil))
			r.has(append(someNames, "Service default/db@105")...)
			r.eventually("the end of the problem", func() bool { return r.sink.reasons() == "" })
			for _, level := range []string{"WARN", "INFO"} {
				if got := r.logs.Matching(level, tt.want); len(got) != 1 {
					t.Errorf("%s log: %q, want one line with %q", level, got, tt.want)
				}
			}
			if n := r.sink.replacements(source.Service); n != 1 {
				t.Errorf("Services were read as a whole %d times; a cut should cost nothing", n)
			}
		})
	}
}

// talk listens at the server's address and says something to all who come, until the
// function that it returns is called.
func (r *rig) talk(t *testing.T, say func(net.Conn)) func() {
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			say(c)
			c.Close()
		}
	}()
	return func() { l.Close() }
}
