package kube

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func (r *rig) postedNow() []string {
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	return append([]string{}, r.api.posted...)
}

// Events wait for the server, and no more are posted than is decent.
func TestEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hangUp()
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	r.start()
	web := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"}
	for range 3 {
		r.source.Post(Event{Regarding: web, Type: corev1.EventTypeWarning, Reason: "FailedToStartServiceHealthcheck", Note: "address in use"})
	}
	r.eventually("the problem", func() bool { return strings.Contains(r.sink.reasons(), "cannot be reached") })
	r.listen(r.ca.valid(t, "kube-apiserver"))
	r.eventually("two events", func() bool { return len(r.postedNow()) == 2 })
	for i := range 2 * eventsBurst {
		r.source.Post(Event{Reason: fmt.Sprint("Reason", i)})
		time.Sleep(10 * time.Millisecond)
	}
	r.eventually("the burst", func() bool { return len(r.postedNow()) >= eventsBurst })
	time.Sleep(time.Second)
	posted := r.postedNow()
	if len(posted) != eventsBurst {
		t.Errorf("%d events were posted in a burst, want %d: %s", len(posted), eventsBurst, strings.Join(posted, "\n"))
	}
	if !strings.Contains(posted[0], `"reason":"Starting"`) {
		t.Errorf("the first event is %s", posted[0])
	}
	if e := posted[1]; !strings.HasPrefix(e, "/apis/events.k8s.io/v1/namespaces/shop/events ") || !strings.Contains(e, `"note":"address in use"`) {
		t.Errorf("the second event is %s", e)
	}
}

// An event that the server refuses is dropped, and is no problem.
func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.misbehave(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodPost {
			r.api.status(w, http.StatusForbidden, "Forbidden", "events is forbidden")
		}
		return req.Method == http.MethodPost
	})
	r.startSynced()
	path := "/apis/events.k8s.io/v1/namespaces/default/events"
	r.eventually("the event", func() bool { return r.api.asked(path) == 1 })
	time.Sleep(minEventPause + time.Second)
	if n := r.api.asked(path); n != 1 {
		t.Errorf("a refused event was posted %d times", n)
	}
	if lines := r.logs.Matching("WARN"); lines != nil {
		t.Errorf("log: %q", lines)
	}
}

func TestDebugHandler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shown slog.Level
		level slog.Level // of klog's record: V(n) is -n
		want  string
	}{
		{slog.LevelDebug, slog.LevelError, "level=DEBUG msg=hello reflector=services"},
		{slog.LevelDebug, -4, "level=DEBUG msg=hello reflector=services"},
		{slog.LevelDebug, -5, ""},
		{slog.LevelInfo, slog.LevelError, ""},
	} {
		var b bytes.Buffer
		log := slog.New(debugHandler{slog.NewTextHandler(&b, &slog.HandlerOptions{
			Level: tt.shown, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})})
		log.With("reflector", "services").Log(t.Context(), tt.level, "hello")
		if got := strings.TrimSpace(b.String()); got != tt.want {
			t.Errorf("level %d at %v: %q, want %q", tt.level, tt.shown, got, tt.want)
		}
		// klog hands errors over without asking whether they are wanted.
		b.Reset()
		if err := log.Handler().Handle(t.Context(), slog.NewRecord(time.Time{}, tt.level, "hello", 0)); err != nil {
			t.Error(err)
		}
		if got := b.String(); (got == "") != (tt.want == "") {
			t.Errorf("level %d at %v, unasked: %q", tt.level, tt.shown, got)
		}
	}
}
