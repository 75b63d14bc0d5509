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
	if o.GetName() == "" || namespaced != (o.GetNamespace() != "") || !isVersion(o.GetResourceVersion()) {
		return fmt.Errorf("%w: a %T of the name %q in namespace %q with the resourceVersion %q",
			errJunk, obj, o.GetName(), o.GetNamespace(), o.GetResourceVersion())
	}
	return nil
}
