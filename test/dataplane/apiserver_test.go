package dataplane

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// apiServer is as much of the Kubernetes API as a Service proxy asks for: list,
// watch and get of the four kinds that it reads, in JSON.
type apiServer struct {
	http http.Server

	mu sync.Mutex
	// events are all changes that ever were. An object's resourceVersion is the number of
	// events up to its change.
	events []event
	// more is closed, and replaced, when an event comes.
	more chan struct{}
}

type event struct {
	collection string
	key        string // namespace/name
	kind       string // as in a watch: ADDED, MODIFIED, DELETED
	object     map[string]any
}

var collections = map[source.Kind]struct{ path, apiVersion string }{
	source.Service:       {"/api/v1/services", "v1"},
	source.Node:          {"/api/v1/nodes", "v1"},
	source.EndpointSlice: {"/apis/discovery.k8s.io/v1/endpointslices", "discovery.k8s.io/v1"},
	source.ServiceCIDR:   {"/apis/networking.k8s.io/v1/servicecidrs", "networking.k8s.io/v1"},
}

func newAPIServer(l net.Listener) *apiServer {
	s := &apiServer{more: make(chan struct{})}
	s.http.Handler = s
	go s.http.Serve(l)
	return s
}

// set brings a change in.
func (s *apiServer) set(c change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	collection := collections[c.Kind]
	e := event{collection: collection.path, key: c.Namespace + "/" + c.Name, kind: "ADDED"}
	if old, ok := s.objects(collection.path)[e.key]; ok {
		e.kind, e.object = "MODIFIED", old
	}
	if c.Object == nil {
		e.kind = "DELETED"
	} else {
		raw, err := json.Marshal(withDefaults(c.Object))
		if err != nil {
			return err
		}
		e.object = nil
		if err := json.Unmarshal(raw, &e.object); err != nil {
			return err
		}
		e.object["kind"], e.object["apiVersion"] = string(c.Kind), collection.apiVersion
	}
	if e.object == nil {
		return fmt.Errorf("%s %s does not exist", c.Kind, e.key)
	}
	e.object = cloneWithVersion(e.object, len(s.events)+1)
	s.events = append(s.events, e)
	close(s.more)
	s.more = make(chan struct{})
	return nil
}

func cloneWithVersion(object map[string]any, version int) map[string]any {
	clone, meta := map[string]any{}, map[string]any{}
	for k, v := range object {
		clone[k] = v
	}
	for k, v := range object["metadata"].(map[string]any) {
		meta[k] = v
	}
	meta["resourceVersion"] = strconv.Itoa(version)
	if meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("uid-%d", version)
	}
	clone["metadata"] = meta
	return clone
}

// withDefaults sets what a real API server would set, as far as a proxy counts on it.
func withDefaults(object metav1.Object) metav1.Object {
	switch o := object.(type) {
	case *corev1.Service:
		o = o.DeepCopy()
		if o.Spec.Type == "" {
			o.Spec.Type = corev1.ServiceTypeClusterIP
		}
		if o.Spec.SessionAffinity == "" {
			o.Spec.SessionAffinity = corev1.ServiceAffinityNone
		}
		if o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && o.Spec.SessionAffinityConfig == nil {
			timeout := corev1.DefaultClientIPServiceAffinitySeconds
			o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}
		if o.Spec.InternalTrafficPolicy == nil {
			policy := corev1.ServiceInternalTrafficPolicyCluster
			o.Spec.InternalTrafficPolicy = &policy
		}
		if o.Spec.ExternalTrafficPolicy == "" && (o.Spec.Type != corev1.ServiceTypeClusterIP || len(o.Spec.ExternalIPs) > 0) {
			o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}
		for _, ip := range o.Spec.ClusterIPs {
			family := corev1.IPv4Protocol
			if strings.Contains(ip, ":") {
				family = corev1.IPv6Protocol
			}
			o.Spec.IPFamilies = append(o.Spec.IPFamilies, family)
		}
		for i := range o.Spec.Ports {
			if o.Spec.Ports[i].Protocol == "" {
				o.Spec.Ports[i].Protocol = corev1.ProtocolTCP
			}
		}
		vip := corev1.LoadBalancerIPModeVIP
		for i := range o.Status.LoadBalancer.Ingress {
			if o.Status.LoadBalancer.Ingress[i].IPMode == nil {
				o.Status.LoadBalancer.Ingress[i].IPMode = &vip
			}
		}
		return o
	case *discoveryv1.EndpointSlice:
		o = o.DeepCopy()
		for i := range o.Ports {
			if o.Ports[i].Protocol == nil {
				tcp := corev1.ProtocolTCP
				o.Ports[i].Protocol = &tcp
			}
		}
		return o
	case *corev1.Node, *networkingv1.ServiceCIDR:
	}
	return object
}

// objects returns what exists in a collection. s.mu is held.
func (s *apiServer) objects(collection string) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, e := range s.events {
		if e.collection == collection {
			all[e.key] = e.object
			if e.kind == "DELETED" {
				delete(all, e.key)
			}
		}
	}
	return all
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	for kind, collection := range collections {
		switch {
		case r.Method != http.MethodGet:
		case r.URL.Path == collection.path && query.Get("watch") != "":
			s.watch(w, r, kind)
			return
		case r.URL.Path == collection.path:
			s.mu.Lock()
			items := []any{}
			for key, o := range s.objects(collection.path) {
				if selected(query.Get("fieldSelector"), query.Get("labelSelector"), key, o) {
					items = append(items, o)
				}
			}
			version := len(s.events)
			s.mu.Unlock()
			json.NewEncoder(w).Encode(map[string]any{"kind": string(kind) + "List", "apiVersion": collection.apiVersion,
				"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)}, "items": items})
			return
		case path.Dir(r.URL.Path) == collection.path: // the cluster-wide kinds alone
			s.mu.Lock()
			o := s.objects(collection.path)["/"+path.Base(r.URL.Path)]
			s.mu.Unlock()
			if o != nil {
				json.NewEncoder(w).Encode(o)
				return
			}
		}
	}
	w.WriteHeader(http.StatusNotFound)
	json.NewEncoder(w).Encode(metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
}

// selected knows the selectors that a proxy uses: the name of the Node, and labels that must not exist.
func selected(fields, labels, key string, object map[string]any) bool {
	if name, ok := strings.CutPrefix(fields, "metadata.name="); ok && key != "/"+name {
		return false
	}
	has, _ := object["metadata"].(map[string]any)["labels"].(map[string]any)
	for label := range strings.SplitSeq(labels, ",") {
		if absent, ok := strings.CutPrefix(label, "!"); ok && has[absent] != nil {
			return false
		}
	}
	return true
}

// watch sends the events after the resourceVersion that the client has, or all objects first if it asks for that.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, kind source.Kind) {
	query, collection := r.URL.Query(), collections[kind]
	next, _ := strconv.Atoi(query.Get("resourceVersion"))
	encode := json.NewEncoder(w)
	send := func(kind string, object any) { encode.Encode(map[string]any{"type": kind, "object": object}) }
	s.mu.Lock()
	if query.Get("sendInitialEvents") == "true" {
		for key, o := range s.objects(collection.path) {
			if selected(query.Get("fieldSelector"), query.Get("labelSelector"), key, o) {
				send("ADDED", o)
			}
		}
		next = len(s.events)
		send("BOOKMARK", map[string]any{"kind": string(kind), "apiVersion": collection.apiVersion, "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(next), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}})
	}
	seen := map[string]bool{} // what matches the selectors now, of what changed
	for {
		for ; next < len(s.events); next++ {
			e := s.events[next]
			if e.collection != collection.path {
				continue
			}
			id, matches := e.key, selected(query.Get("fieldSelector"), query.Get("labelSelector"), e.key, e.object)
			switch {
			case matches:
				send(e.kind, e.object)
			case e.kind != "DELETED" && (e.kind == "MODIFIED" || seen[id]):
				send("DELETED", e.object) // it matched before, or the client does not mind
			}
			seen[id] = matches
		}
		more := s.more
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
	}
}
