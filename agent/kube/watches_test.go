package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/source"
)

// Watches that end every few seconds carry on, and nobody is alarmed.
func TestShortWatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.api.with(func() { r.api.lifetime = 3 * time.Second })
	r.startSynced()
	for i := range 4 {
		time.Sleep(3200 * time.Millisecond)
		r.api.put(service(fmt.Sprint("s", i), "10.43.1.1", nil))
		want := fmt.Sprintf("Service default/s%d@%d", i, 105+i)
		r.eventually(want, func() bool { return slices.Contains(r.sink.names(), want) })
	}
	if got := r.logs.Matching("WARN"); got != nil {
		t.Errorf("log: %q", got)
	}
	if n := r.sink.replacements(source.Service); n != 1 {
		t.Errorf("Services were read as a whole %d times", n)
	}
	if n := r.api.asked(servicesPath, "watch=true"); n > 10 {
		t.Errorf("%d watches: no pauses?", n)
	}
}

// A server that keeps connections and says nothing, within a list and after it.
func TestQuiet(t *testing.T) {
	t.Parallel()
	short := defaultLimits
	short.list, short.idle, short.watch, short.alive = time.Second, 2*time.Second, time.Minute, 500*time.Millisecond
	quiet := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("watch") {
			return false
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	t.Run("within a list", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.api.put(some()...)
		r.api.misbehave(quiet)
		r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
		r.startWith(short)
		r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "sends nothing for 1s") })
		r.api.misbehave(nil)
		r.eventually("synced", r.sink.isSynced)
		r.has(someNames...)
	})
	t.Run("before a watch", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.api.put(some()...)
		r.api.misbehave(r.watches(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
		r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
		l := defaultLimits
		l.open = time.Second
		r.startWith(l)
		r.eventually("synced", r.sink.isSynced)
		r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "sends nothing for 1s") })
		time.Sleep(3 * time.Second)
		if n := r.api.asked(servicesPath, "watch=true"); n < 2 || n > 8 {
			t.Errorf("%d watches were asked for in some seconds", n)
		}
		if n := r.sink.replacements(source.Service); n != 1 {
			t.Errorf("Services were read as a whole %d times; a watch that does not begin should cost nothing", n)
		}
		r.api.misbehave(nil)
		r.api.put(service("db", "10.43.0.12", nil))
		r.has(append(someNames, "Service default/db@105")...)
		r.eventually("the end of the problem", func() bool { return r.sink.reasons() == "" })
	})
	t.Run("within an event", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.api.put(some()...)
		half := r.api.event(watch.Added, service("db", "10.43.0.12", nil))
		half = half[:len(half)/2]
		r.api.misbehave(r.watches(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
			_, _ = w.Write(half)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		}))
		r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
		r.startWith(short)
		r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "sends nothing for 2s") })
		r.api.misbehave(nil)
		r.api.put(service("db", "10.43.0.12", nil))
		r.has(append(someNames, "Service default/db@105")...)
		if n := r.sink.replacements(source.Service); n > 2 {
			t.Errorf("Services were read as a whole %d times", n)
		}
	})
	t.Run("after the list", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.api.put(some()...)
		r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
		r.startWith(short)
		r.eventually("synced", r.sink.isSynced)
		r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "sends nothing for 2s") })
		r.eventually("new requests", func() bool { return r.api.asked(servicesPath, "watch=true") > 1 })
		r.has(someNames...)
	})
}

// A server, or a proxy before it, that closes each watch at once makes nobody read everything again.
func TestWatchesClosedAtOnceCostNoLists(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	r.api.misbehave(r.watches(body(runtime.ContentTypeProtobuf+";stream=watch", "")))
	r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "closes the watch at once") })
	time.Sleep(5 * time.Second)
	if n := r.sink.replacements(source.Service); n != 1 {
		t.Errorf("Services were read as a whole %d times", n)
	}
	r.api.misbehave(nil)
	r.api.put(service("db", "10.43.0.12", nil))
	r.has(append(someNames, "Service default/db@105")...)
}
