package kube

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

// apiServer is a small API server: lists, whole or in pages, watches and bookmarks, in
// protobuf. It can be told to misbehave.
type apiServer struct {
	t      *testing.T
	scheme *runtime.Scheme

	mu       sync.Mutex
	version  int64
	oldest   int64 // watches from before get 410
	objects  map[string]map[string]runtime.Object
	history  []apiEvent
	changed  chan struct{} // closed and replaced at each change
	requests []*http.Request
	posted   []string
	// fault answers in place of the server if it returns true. Its setting cuts open watches.
	fault  func(http.ResponseWriter, *http.Request) bool
	faults int // how often fault was set
	// bookmarks is how often one is sent; lifetime is how long a watch lasts.
	bookmarks, lifetime time.Duration
}

type apiEvent struct {
	version int64
	path    string
	kind    watch.EventType
	object  runtime.Object
}

const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"
	cidrsPath    = "/apis/networking.k8s.io/v1/servicecidrs"
)

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{
		t: t, scheme: newScheme(), version: 100, changed: make(chan struct{}), bookmarks: time.Hour, lifetime: time.Hour,
		objects: map[string]map[string]runtime.Object{servicesPath: {}, slicesPath: {}, nodesPath: {}, cidrsPath: {}},
	}
	return s
}

func pathOf(obj runtime.Object) string {
	switch obj.(type) {
	case *corev1.Service:
		return servicesPath
	case *discoveryv1.EndpointSlice:
		return slicesPath
	case *corev1.Node:
		return nodesPath
	}
	return cidrsPath
}

func nameOf(obj runtime.Object) string {
	m, _ := meta.Accessor(obj)
	return m.GetNamespace() + "/" + m.GetName()
}

// put adds or changes objects.
func (s *apiServer) put(objs ...runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objs {
		path, kind := pathOf(obj), watch.Modified
		if s.objects[path][nameOf(obj)] == nil {
			kind = watch.Added
		}
		s.record(path, kind, obj)
		s.objects[path][nameOf(obj)] = obj
	}
	s.wakeLocked()
}

func (s *apiServer) delete(objs ...runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objs {
		path := pathOf(obj)
		delete(s.objects[path], nameOf(obj))
		s.record(path, watch.Deleted, obj)
	}
	s.wakeLocked()
}

func (s *apiServer) record(path string, kind watch.EventType, obj runtime.Object) {
	s.version++
	m, _ := meta.Accessor(obj)
	m.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.history = append(s.history, apiEvent{s.version, path, kind, obj.DeepCopyObject()})
}

func (s *apiServer) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// with changes the server's settings.
func (s *apiServer) with(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.wakeLocked()
}

// misbehave sets the fault, or with nil takes it away.
func (s *apiServer) misbehave(fault func(http.ResponseWriter, *http.Request) bool) {
	s.with(func() { s.fault, s.faults = fault, s.faults+1 })
}

// asked counts requests to a path with query parameters ("name=value", or "!name").
func (s *apiServer) asked(path string, query ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		q := r.URL.Query()
		if r.URL.Path == path && !slices.ContainsFunc(query, func(want string) bool {
			name, value, ok := strings.Cut(want, "=")
			return ok && q.Get(name) != value || !ok && q.Has(strings.TrimPrefix(want, "!"))
		}) {
			n++
		}
	}
	return n
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.fault
	s.requests = append(s.requests, r)
	_, known := s.objects[r.URL.Path]
	s.mu.Unlock()
	q := r.URL.Query()
	switch {
	case fault != nil && fault(w, r):
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		s.with(func() { s.posted = append(s.posted, r.URL.Path+" "+string(body)) })
		w.WriteHeader(http.StatusCreated)
	case !known:
		http.NotFound(w, r)
	case q.Get("watch") == "true":
		s.serveWatch(w, r, q)
	default:
		s.serveList(w, r, q)
	}
}

func selected(obj runtime.Object, q url.Values) bool {
	m, _ := meta.Accessor(obj)
	set := fields.Set{"metadata.name": m.GetName()}
	if svc, ok := obj.(*corev1.Service); ok {
		set["spec.clusterIP"] = svc.Spec.ClusterIP
	}
	l, err := labels.Parse(q.Get("labelSelector"))
	f, err2 := fields.ParseSelector(q.Get("fieldSelector"))
	return err == nil && err2 == nil && l.Matches(labels.Set(m.GetLabels())) && f.Matches(set)
}

// names lists what is selected, sorted; the lock is held.
func (s *apiServer) names(path string, q url.Values) []string {
	var names []string
	for name, obj := range s.objects[path] {
		if selected(obj, q) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *apiServer) serveList(w http.ResponseWriter, r *http.Request, q url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names(r.URL.Path, q)
	start, _ := strconv.Atoi(q.Get("continue"))
	end := len(names)
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 {
		end = min(end, start+limit)
	}
	lm := metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.version, 10)}
	if end < len(names) {
		lm.Continue = strconv.Itoa(end)
	}
	var list runtime.Object
	page := names[min(start, end):end]
	switch objs := s.objects[r.URL.Path]; r.URL.Path {
	case servicesPath:
		list = &corev1.ServiceList{ListMeta: lm, Items: items[corev1.Service](objs, page)}
	case slicesPath:
		list = &discoveryv1.EndpointSliceList{ListMeta: lm, Items: items[discoveryv1.EndpointSlice](objs, page)}
	case nodesPath:
		list = &corev1.NodeList{ListMeta: lm, Items: items[corev1.Node](objs, page)}
	case cidrsPath:
		list = &networkingv1.ServiceCIDRList{ListMeta: lm, Items: items[networkingv1.ServiceCIDR](objs, page)}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_, _ = w.Write(s.encode(list))
}

func items[T any](objs map[string]runtime.Object, names []string) []T {
	var list []T
	for _, name := range names {
		list = append(list, *any(objs[name]).(*T))
	}
	return list
}

// encode writes an object as it is on the wire.
func (s *apiServer) encode(obj runtime.Object) []byte {
	obj = obj.DeepCopyObject()
	gvks, _, err := s.scheme.ObjectKinds(obj)
	if err != nil {
		panic(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvks[0])
	var b bytes.Buffer
	if err := protobuf.NewSerializer(s.scheme, s.scheme).Encode(obj, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func (s *apiServer) status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_, _ = w.Write(s.encode(&metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}))
}

func (s *apiServer) serveWatch(w http.ResponseWriter, r *http.Request, q url.Values) {
	from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	s.mu.Lock()
	gone, faults := from < s.oldest, s.faults
	tick, end := time.NewTicker(s.bookmarks), time.After(s.lifetime)
	s.mu.Unlock()
	if gone {
		s.status(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	send := func(kind watch.EventType, obj runtime.Object) {
		_, _ = w.Write(s.event(kind, obj))
		w.(http.Flusher).Flush()
	}
	bookmark := func(version int64) {
		obj := s.empty(r.URL.Path)
		m, _ := meta.Accessor(obj)
		m.SetResourceVersion(strconv.FormatInt(version, 10))
		send(watch.Bookmark, obj)
	}
	w.(http.Flusher).Flush()
	defer tick.Stop()
	for {
		s.mu.Lock()
		changed, version, cut := s.changed, s.version, s.faults != faults
		var events []apiEvent
		for _, e := range s.history {
			if e.version > from && e.path == r.URL.Path && selected(e.object, q) {
				events = append(events, e)
			}
		}
		s.mu.Unlock()
		if cut {
			return
		}
		for _, e := range events {
			send(e.kind, e.object)
			from = e.version
		}
		select {
		case <-changed:
		case <-tick.C:
			if version >= from {
				bookmark(version)
			}
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// event writes an event as it is in a watch.
func (s *apiServer) event(kind watch.EventType, obj runtime.Object) []byte {
	var b, framed bytes.Buffer
	_ = protobuf.NewRawSerializer(s.scheme, s.scheme).Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: s.encode(obj)}}, &b)
	_, _ = protobuf.LengthDelimitedFramer.NewFrameWriter(&framed).Write(b.Bytes())
	return framed.Bytes()
}

func (s *apiServer) empty(path string) runtime.Object {
	gvk := map[string]schema.GroupVersionKind{
		servicesPath: corev1.SchemeGroupVersion.WithKind("Service"), nodesPath: corev1.SchemeGroupVersion.WithKind("Node"),
		slicesPath: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), cidrsPath: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
	}[path]
	obj, err := s.scheme.New(gvk)
	if err != nil {
		panic(fmt.Sprint(path, ": ", err))
	}
	return obj
}
