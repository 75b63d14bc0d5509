package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// isVersion tells whether s can be the resourceVersion of something that exists. To ask for changes
// since "" or "0" is to ask for changes since any time.
func isVersion(s string) bool { return s != "" && s != "0" }

// maxName and maxNamespace bound names in bytes: they are a DNS subdomain (RFC 1123) and a label of one (RFC 1035).
const maxName, maxNamespace = 253, 63

// checkObject tells whether an object has what each object of an API server has.
func checkObject(obj runtime.Object) error {
	o, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Errorf("%w: a %T", errJunk, obj)
	}
	namespaced := false
	switch obj.(type) {
	case *corev1.Service, *discoveryv1.EndpointSlice:
		namespaced = true
	}
	if o.GetName() == "" || namespaced != (o.GetNamespace() != "") ||
		len(o.GetName()) > maxName || len(o.GetNamespace()) > maxNamespace || !isVersion(o.GetResourceVersion()) {
		return fmt.Errorf("%w: a %T of the name %.100q in namespace %.100q with the resourceVersion %.100q",
			errJunk, obj, o.GetName(), o.GetNamespace(), o.GetResourceVersion())
	}
	return nil
}
