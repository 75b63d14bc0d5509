package kube

import (
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice/agent/source"
)

// resource is one collection of the API that is followed. The selectors are
// evaluated by the server: what they leave out is never sent.
type resource struct {
	kind          source.Kind
	name          string // plural, in the role's rules
	path          string
	labelSelector string
	fieldSelector string
	object        runtime.Object // an empty one
	most          int            // objects in a list
	// needed: nothing is synced before this was read once. Of the others it is enough to
	// know that the server does not have them or does not give them.
	needed bool
}

// list says which list the server answers with.
func (r resource) list() listKind {
	// /api/v1/services is of v1, /apis/discovery.k8s.io/v1/endpointslices of discovery.k8s.io/v1.
	_, version, _ := strings.Cut(strings.TrimPrefix(path.Dir(r.path), "/"), "/")
	return listKind{
		item: reflect.TypeOf(r.object),
		meta: runtime.TypeMeta{APIVersion: version, Kind: string(r.kind) + "List"},
	}
}

// resources are what kube-proxy 1.37 follows. An EndpointSlice without the label of
// its Service belongs to none.
func resources(nodeName string) []resource {
	return []resource{
		{
			kind: source.Service, name: "services", path: "/api/v1/services", object: &corev1.Service{}, most: maxServices, needed: true,
			labelSelector: "!service.kubernetes.io/service-proxy-name", // KEP-2447
			fieldSelector: "spec.clusterIP!=" + corev1.ClusterIPNone,
		},
		{
			kind: source.EndpointSlice, name: "endpointslices", path: "/apis/discovery.k8s.io/v1/endpointslices",
			object: &discoveryv1.EndpointSlice{}, most: maxSlices, needed: true,
			labelSelector: "!" + corev1.IsHeadlessService + "," + discoveryv1.LabelServiceName,
		},
		{
			kind: source.Node, name: "nodes", path: "/api/v1/nodes", object: &corev1.Node{}, most: maxOthers,
			fieldSelector: "metadata.name=" + nodeName,
		},
		{
			// Served since Kubernetes 1.33.
			kind: source.ServiceCIDR, name: "servicecidrs", path: "/apis/networking.k8s.io/v1/servicecidrs",
			object: &networkingv1.ServiceCIDR{}, most: maxOthers,
		},
	}
}
