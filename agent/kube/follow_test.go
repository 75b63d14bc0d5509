package kube

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice/agent/source"
)

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func service(name, clusterIP string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, Annotations: map[string]string{"note": "not read"}},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func slice(name string, labels map[string]string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: labels,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "endpointslice-controller"}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.1"}}},
	}
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func cidr(name string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.43.0.0/16"}}}
}

var ofWeb = map[string]string{"kubernetes.io/service-name": "web"}

// some are the objects that most tests begin with; their versions are 101 to 104.
func some() []runtime.Object {
	return []runtime.Object{service("web", "10.43.0.10", nil), slice("web-1", ofWeb), node("pi"), cidr("kubernetes")}
}

var someNames = []string{
	"EndpointSlice default/web-1@102", "Node /pi@103", "Service default/web@101", "ServiceCIDR /kubernetes@104",
}

func TestFollow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.api.put(
		service("headless", "None", nil),
		service("other", "10.43.0.11", map[string]string{"service.kubernetes.io/service-proxy-name": "other"}),
		slice("headless-1", map[string]string{"kubernetes.io/service-name": "headless", "service.kubernetes.io/headless": ""}),
		slice("nobodys", nil), node("other"),
	)
	r.startSynced()
	r.has(someNames...)

	r.api.put(service("web", "10.43.0.10", nil), service("db", "10.43.0.12", nil))
	r.api.delete(slice("web-1", ofWeb))
	r.has("Node /pi@103", "Service default/db@111", "Service default/web@110", "ServiceCIDR /kubernetes@104")

	s, _ := r.sink.objects[source.Service][source.Name{Namespace: "default", Name: "db"}].(*corev1.Service)
	want := service("db", "10.43.0.12", nil)
	want.ResourceVersion, want.Annotations = "111", nil
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("a Service as it is handed over (-want +got):\n%s", diff)
	}
	if lines := r.logs.Matching("WARN"); lines != nil || r.sink.reasons() != "" {
		t.Errorf("problems where all is well: %q, %s", lines, r.sink.reasons())
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	r.eventually("the event Starting", func() bool { return r.api.asked("/apis/events.k8s.io/v1/namespaces/default/events") > 0 })
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	for _, req := range r.api.requests {
		if req.ProtoMajor != 2 || !strings.HasPrefix(req.UserAgent(), "sluice/") || req.TLS.PeerCertificates[0].Subject.CommonName != "system:kube-proxy" {
			t.Errorf("%s: HTTP %d, %q, certificate of %q", req.URL, req.ProtoMajor, req.UserAgent(), req.TLS.PeerCertificates[0].Subject)
		}
		if accept := req.Header.Get("Accept"); req.Method == http.MethodGet && !strings.HasPrefix(accept, "application/vnd.kubernetes.protobuf") {
			t.Errorf("%s: Accept %q, want protobuf first", req.URL, accept)
		}
		if e := req.Header.Get("Accept-Encoding"); strings.Contains(e, "gzip") {
			t.Errorf("%s: Accept-Encoding %q", req.URL, e)
		}
	}
	for _, want := range []string{`"reason":"Starting"`, `"regarding":{"kind":"Node","name":"pi","uid":"pi","apiVersion":"v1"}`, `"type":"Normal"`, `"reportingController":"sluice"`} {
		if !strings.Contains(r.api.posted[0], want) {
			t.Errorf("the event lacks %s: %s", want, r.api.posted[0])
		}
	}
}

func TestNoServiceCIDRs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.with(func() { delete(r.api.objects, cidrsPath) })
	r.startSynced()
	time.Sleep(minSettle)
	if n := r.api.asked(cidrsPath); n > 1 {
		t.Errorf("asked %d times for what the server does not have, want once", n)
	}
	if lines := r.logs.Matching("WARN"); lines != nil || r.sink.replacements(source.ServiceCIDR) > 0 {
		t.Errorf("log %q, %d replacements of ServiceCIDRs", lines, r.sink.replacements(source.ServiceCIDR))
	}
}

func TestInStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.with(func() { r.api.bookmarks = 50 * time.Millisecond })
	r.api.put(some()...)
	var mu sync.Mutex
	steps := map[source.Kind][]string{}
	var times []time.Time
	r.startSynced(func(o *Options) {
		o.InStep = func(kind source.Kind, version string) {
			mu.Lock()
			defer mu.Unlock()
			steps[kind] = append(steps[kind], version)
			if kind == source.Service {
				times = append(times, time.Now())
			}
		}
	})
	r.api.put(service("db", "10.43.0.12", nil)) // 105
	r.eventually("a bookmark of 105 for each kind", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, kind := range source.Kinds {
			if s := steps[kind]; len(s) < 2 || s[0] != "104" || !slices.Contains(s, "105") {
				return false
			}
		}
		return len(times) > 2
	})
	mu.Lock()
	defer mu.Unlock()
	for i := range times[1:] {
		if d := times[i+1].Sub(times[i]); d < inStepInterval {
			t.Errorf("two reports within %v", d)
		}
	}
}

// What a watch says that comes to an end is taken up where the watch ended.
func TestWatchesResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	time.Sleep(time.Second) // a watch that ends sooner counts as none
	r.hangUp()
	r.api.put(service("db", "10.43.0.12", nil))
	r.listen(r.ca.valid(t, "kube-apiserver"))
	r.has(append(someNames, "Service default/db@105")...)
	for _, kind := range source.Kinds {
		if n := r.sink.replacements(kind); n != 1 {
			t.Errorf("%s was read as a whole %d times; a cut should cost nothing", kind, n)
		}
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	time.Sleep(time.Second) // a watch that ends sooner counts as none
	r.hangUp()
	r.api.delete(slice("web-1", ofWeb))
	r.api.put(service("db", "10.43.0.12", nil))
	r.api.with(func() { r.api.oldest = r.api.version + 1 })
	r.listen(r.ca.valid(t, "kube-apiserver"))
	r.has("Node /pi@103", "Service default/db@106", "Service default/web@101", "ServiceCIDR /kubernetes@104")
	if n := r.sink.replacements(source.Service); n != 2 {
		t.Errorf("Services were read as a whole %d times, want 2", n)
	}
}

// A server that was restored from a backup has older versions. A watch from the version
// that was read before would stay silent.
func TestRestored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.api.put(service("db", "10.43.0.12", nil))
	r.startSynced()
	time.Sleep(time.Second) // a watch that ends sooner counts as none
	r.hangUp()
	r.api.with(func() {
		delete(r.api.objects[servicesPath], "default/db")
		r.api.version, r.api.history = 90, nil
	})
	r.listen(r.ca.valid(t, "kube-apiserver"))
	r.api.put(service("new", "10.43.0.13", nil))
	r.has(append(someNames, "Service default/new@91")...)
	if lines := r.logs.Matching("WARN", "older data"); len(lines) == 0 {
		t.Error("the log does not say that the server has older data")
	}
}
