package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// newScheme returns a scheme of the kinds that are read, and no others: the
// AddToScheme functions of k8s.io/api would keep every kind of their groups in the binary.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion,
		&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion,
		&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	// Status, WatchEvent and the options of requests.
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(scheme, gv)
	}
	return scheme
}

// newSerializer returns what reads and writes the kinds of newScheme on the wire, as they are.
func newSerializer() runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(newScheme(), serializer.DisablePretty).WithoutConversion()
}
