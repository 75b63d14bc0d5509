package kube

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/source"
)

// tooLargeService is one that no server takes.
func tooLargeService(name string) *corev1.Service {
	s := service(name, "10.43.0.11", nil)
	s.ResourceVersion = "7"
	s.Annotations["note"] = strings.Repeat("x", maxObject)
	return s
}

// An object that is too large is left out by name, of a list and of a watch. The others come, and what was known of it stays.
func TestOversized(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sink.mayLack = true
	r.api.put(some()...)
	r.startSynced()
	// In a watch.
	r.api.put(tooLargeService("web"), service("next", "10.43.0.12", nil)) // 105, 106
	r.has(append(slices.Clone(someNames), "Service default/next@106")...)
	if n := len(r.logs.Matching("WARN", "too large")); n != 1 {
		t.Errorf("%d lines of the log say that an object is too large", n)
	}
	// In a list.
	r.hangUp()
	r.api.put(tooLargeService("new"), service("last", "10.43.0.13", nil)) // 107, 108
	r.api.with(func() { r.api.oldest = r.api.version + 1 })
	r.listen(r.ca.valid(t, "kube-apiserver"))
	r.eventually("another list", func() bool { return r.sink.replacements(source.Service) == 2 })
	if names := r.sink.names(); !slices.Contains(names, "Service default/web@101") || !slices.Contains(names, "Service default/last@108") || slices.Contains(names, "Service default/new@107") {
		t.Errorf("objects are now %q", names)
	}
	if n := len(r.logs.Matching("WARN", "too large")); n < 3 {
		t.Errorf("%d lines of the log say that an object is too large", n)
	}
}

// A frame that is too long is taken out, wherever reads end.
func TestFrameGuardTakesOut(t *testing.T) {
	api := &apiServer{scheme: newScheme()}
	small := api.event(watch.Added, service("a", "10.43.0.1", nil))
	large := api.event(watch.Added, tooLargeService("web"))
	for _, in := range []io.Reader{
		bytes.NewReader(slices.Concat(small, large, small, large, large, small)),
		iotest.HalfReader(bytes.NewReader(slices.Concat(small, large, small, large, large, small))),
	} {
		var refused []string
		passed, err := io.ReadAll(&frameGuard{ReadCloser: io.NopCloser(in), refused: func(o *oversized) { refused = append(refused, o.Namespace+"/"+o.Name.Name) }})
		if err != nil || !bytes.Equal(passed, slices.Concat(small, small, small)) {
			t.Errorf("%d bytes passed of %d, %v", len(passed), 3*len(small), err)
		}
		if !slices.Equal(refused, []string{"default/web", "default/web", "default/web"}) {
			t.Errorf("refused: %q", refused)
		}
	}
}

// What is said of an object is no more than what is there.
func TestOversizedWithoutName(t *testing.T) {
	nameless := tooLargeService("")
	raw, err := nameless.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	whole := func(b []byte) []byte { return b }
	if o, err := skipOversized(bytes.NewReader(raw), int64(len(raw)), whole); err == nil {
		t.Errorf("an object without a name is %+v", o)
	}
	for n := range 200 {
		event := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw[:n]}}
		b, err := event.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_ = field(ofEvent(b), 1) // does not panic
		_ = field(ofEvent(b[:n/2]), 1)
	}
}
