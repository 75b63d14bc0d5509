package kube

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/agent/source"
)

// However often the server went away before, and for how long: when it is back, it is followed within a pause.
func TestServerComesAndGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	want := someNames
	for i, away := range []time.Duration{12 * time.Second, 2 * time.Second, 5 * time.Second, 12 * time.Second} {
		time.Sleep(time.Second) // a watch that ends sooner counts as none
		r.hangUp()
		r.api.put(service(fmt.Sprint("s", i), "10.43.1.1", nil))
		time.Sleep(away)
		r.listen(r.ca.valid(t, "kube-apiserver"))
		back := time.Now()
		want = append(want, fmt.Sprintf("Service default/s%d@%d", i, 105+i))
		r.has(want...)
		if took := time.Since(back); took > maxPause+8*time.Second {
			t.Errorf("outage %d, of %v: in step %v after the server was back", i, away, took)
		}
	}
	if n := r.sink.replacements(source.Service); n != 1 {
		t.Errorf("Services were read as a whole %d times; outages should cost nothing", n)
	}
	if got := r.logs.Matching("WARN"); len(got) > 4 {
		t.Errorf("log: %q, want a line for each outage at most", got)
	}
}

// While nobody answers, attempts are few, and do not come together.
func TestAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	time.Sleep(time.Second)
	r.hangUp()
	var attempts atomic.Int64
	stop := r.talk(t, func(net.Conn) { attempts.Add(1) })
	time.Sleep(15 * time.Second)
	begun := attempts.Load()
	time.Sleep(20 * time.Second)
	stop()
	n := attempts.Load() - begun
	// Each of the collections comes each 2.5 s to 5 s; the event was posted before.
	if kinds := int64(len(source.Kinds)); n < 3*kinds || n > 9*kinds {
		t.Errorf("%d attempts in 20 s, want %d to %d", n, 3*kinds, 9*kinds)
	}
}

// A server that starts forbids everything until it knows its roles. That is no problem, and
// does not mean that a collection is not to be had.
func TestServerStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	forbid := func() {
		r.api.misbehave(always(func(w http.ResponseWriter, _ *http.Request) {
			r.api.status(w, http.StatusForbidden, "Forbidden", "clusterrole.rbac.authorization.k8s.io not found")
		}))
	}
	forbid()
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	r.start()
	time.Sleep(starting / 2)
	r.api.misbehave(about(servicesPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	time.Sleep(starting / 4)
	if r.sink.isSynced() {
		t.Error("synced while the server starts")
	}
	r.api.misbehave(about(nodesPath, func(w http.ResponseWriter, _ *http.Request) {
		r.api.status(w, http.StatusForbidden, "Forbidden", "clusterrole.rbac.authorization.k8s.io not found")
	}))
	time.Sleep(starting / 8)
	if r.sink.isSynced() {
		t.Error("synced without the Node, which the server forbids for a moment")
	}
	r.api.misbehave(nil)
	r.eventuallyIn(maxPause+2*time.Second, "synced", r.sink.isSynced)
	r.has(someNames...)

	time.Sleep(time.Second)
	r.hangUp()
	forbid()
	r.eventually("the outage", func() bool { return len(r.logs.Matching("WARN", "cannot be reached")) == 1 })
	time.Sleep(5 * time.Second)
	r.listen(r.ca.valid(t, "kube-apiserver"))
	time.Sleep(starting / 2)
	r.api.misbehave(nil)
	r.api.put(service("db", "10.43.0.12", nil))
	back := time.Now()
	r.has(append(someNames, "Service default/db@105")...)
	if took := time.Since(back); took > maxPause+8*time.Second {
		t.Errorf("in step %v after the server had started", took)
	}
	if got := r.logs.Matching("WARN"); len(got) != 1 {
		t.Errorf("log: %q, want nothing of what the server answered while it started", got)
	}
}

// What a watch met counts no more when the list that takes its place fails.
func TestFaultsOfBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	time.Sleep(time.Second)
	forbidWatch := func(path string) {
		r.Helper()
		asked := r.api.asked(path, "watch=true")
		r.api.misbehave(about(path, func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Query().Get("watch") == "true" {
				r.api.status(w, http.StatusForbidden, "Forbidden", "as the test wants it")
			} else {
				r.api.serveList(w, req, req.URL.Query())
			}
		}))
		r.eventually("a watch that is refused", func() bool { return r.api.asked(path, "watch=true") > asked })
	}
	forbidWatch(servicesPath)
	r.api.misbehave(about(servicesPath, func(w http.ResponseWriter, req *http.Request) {
		switch q := req.URL.Query(); {
		case q.Get("watch") == "true":
			r.api.status(w, http.StatusGone, "Expired", "too old resource version")
		case q.Get("limit") == "1": // whether the server has older data
			r.api.serveList(w, req, q)
		default:
			r.api.status(w, http.StatusInternalServerError, "InternalError", "as the test wants it")
		}
	}))
	r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "500") })
	forbidWatch(slicesPath)
	r.api.misbehave(nil)
	r.eventually("no problem", func() bool { return r.sink.reasons() == "" })
	if got := r.logs.Matching("WARN", "403"); len(got) > 0 {
		t.Errorf("log: %q, want nothing of what was met twice for a moment", got)
	}
}
