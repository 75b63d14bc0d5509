package kube

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice/agent/source"
)

// newServices makes n Services of names that nobody had before.
func newServices(from, n int) []corev1.Service {
	list := make([]corev1.Service, n)
	for i := range list {
		list[i].ObjectMeta = metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%050d", from+i), ResourceVersion: "5", Annotations: map[string]string{"a": "b"},
		}
	}
	return list
}

// A list of ever new names is given up before they fill the memory. While it is as it is, nothing more of
// it is handed over, however often it is tried.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		list func(r *rig, w http.ResponseWriter, req *http.Request, from int) (next int)
	}{
		{"one answer without end", func(_ *rig, w http.ResponseWriter, req *http.Request, from int) int {
			typed := marshalled(&runtime.TypeMeta{APIVersion: "v1", Kind: "ServiceList"})
			head := append([]byte(protobufMagic), message(unknownTypeMeta, typed)...)
			_, _ = w.Write(binary.AppendUvarint(append(head, unknownRaw<<3|lengthDelimited), 1<<60))
			for req.Context().Err() == nil {
				var b []byte
				for _, s := range newServices(from, 500) {
					b = append(b, message(listItems, marshalled(&s))...)
				}
				_, _ = w.Write(b)
				from += 500
			}
			return from
		}},
		{"pages without end", func(r *rig, w http.ResponseWriter, _ *http.Request, from int) int {
			_, _ = w.Write(r.api.encode(&corev1.ServiceList{
				ListMeta: metav1.ListMeta{ResourceVersion: "200", Continue: strconv.Itoa(from)}, Items: newServices(from, 5_000),
			}))
			return from + 5_000
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.api.put(some()...)
			var one sync.Mutex // answer at a time
			from := 0
			r.api.misbehave(about(servicesPath, func(w http.ResponseWriter, req *http.Request) {
				one.Lock()
				defer one.Unlock()
				w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
				from = tt.list(r, w, req, from)
			}))
			r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
			l := defaultLimits
			l.large = 100 * time.Millisecond
			r.startWith(l)
			r.eventuallyIn(time.Minute, "the problem", func() bool {
				return strings.Contains(r.sink.reasons(), fmt.Sprintf("more than %d objects", maxServices))
			})
			r.eventuallyIn(time.Minute, "it is tried twice more", func() bool { return r.api.asked(servicesPath, "!continue") >= 3 })
			if r.sink.isSynced() || r.sink.replacements(source.Service) > 0 {
				t.Error("it is taken for a whole list")
			}
			r.sink.mu.Lock()
			n := len(r.sink.objects[source.Service])
			r.sink.mu.Unlock()
			if n > maxServices {
				t.Errorf("%d Services were handed over in some attempts, want at most %d in all", n, maxServices)
			}
			r.api.misbehave(nil)
			r.eventually("synced", r.sink.isSynced)
			r.has(someNames...)
		})
	}
}

func TestTally(t *testing.T) {
	large := service("a", "10.43.0.1", map[string]string{"x": strings.Repeat("x", 1<<20)})
	tests := []struct {
		name   string
		object *corev1.Service
		most   int
		want   int // so many pass
	}{
		{"small objects", service("a", "10.43.0.1", nil), 1_000, 1_000},
		{"large objects", large, 1_000, maxListBytes >> 20},
	}
	for _, tt := range tests {
		tally, n := tally{most: tt.most}, 0
		err := error(nil)
		for ; err == nil && n <= tt.most; n++ {
			err = tally.count(tt.object)
		}
		if !errors.Is(err, errTooLarge) || n-1 > tt.want || n-1 < tt.want-1 {
			t.Errorf("%s: error %v after %d, want one after %d", tt.name, err, n-1, tt.want)
		}
	}
	for _, r := range resources("pi") {
		if r.most <= 0 {
			t.Errorf("no %s may come at all", r.name)
		}
	}
}
