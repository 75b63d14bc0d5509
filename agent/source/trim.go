package source

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels that are read, by kind. All others are cleared.
var (
	// A Service with this label belongs to another proxy (KEP-2447); k8s.io/api has no constant for it.
	serviceLabels       = []string{"service.kubernetes.io/service-proxy-name"}
	endpointSliceLabels = []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService}
	nodeLabels          = []string{corev1.LabelTopologyZone}
)

// Trim clears every field of obj that is not read, in place, so that what is
// kept and stored is small: most of an object's bytes are managedFields,
// annotations, conditions and status that a Service proxy has no use for. What is
// kept are plain texts, and times that can be written. It
// knows *corev1.Service, *discoveryv1.EndpointSlice, *corev1.Node and
// *networkingv1.ServiceCIDR; of any other object only the metadata is trimmed.
//
// The metadata keeps name, namespace, uid, resourceVersion, creationTimestamp and
// deletionTimestamp; of the labels those that are read.
func Trim(obj metav1.Object) {
	switch o := obj.(type) {
	case *corev1.Service:
		trimService(o)
	case *discoveryv1.EndpointSlice:
		trimEndpointSlice(o)
	case *corev1.Node:
		trimNode(o)
	case *networkingv1.ServiceCIDR:
		trimServiceCIDR(o)
	default:
		obj.SetLabels(nil)
		obj.SetAnnotations(nil)
		obj.SetManagedFields(nil)
		obj.SetOwnerReferences(nil)
		obj.SetFinalizers(nil)
	}
}

// trimMeta returns the fields of m that are read, with the named labels and annotations.
func trimMeta(m *metav1.ObjectMeta, labels, annotations []string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: within(m.CreationTimestamp),
		DeletionTimestamp: m.DeletionTimestamp,
		Labels:            pick(m.Labels, labels),
		Annotations:       pick(m.Annotations, annotations),
	}
}

// within brings a time into the years that can be written (RFC 3339). What else a server says, nobody could read.
func within(t metav1.Time) metav1.Time {
	switch year := t.UTC().Year(); {
	case year > 9999:
		return metav1.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	case year < 0:
		return metav1.Time{}
	}
	return t
}

// maxValue is how long a label's value is at most, in bytes. The time in the one annotation that is read is shorter;
// what is longer is none, and could have 256 KiB.
const maxValue = 63

// pick returns the entries of m under keys, nil if there are none.
func pick(m map[string]string, keys []string) map[string]string {
	var picked map[string]string
	for _, k := range keys {
		v, ok := m[k]
		if !ok || len(v) > maxValue {
			continue
		}
		if picked == nil {
			picked = make(map[string]string, 1)
		}
		picked[k] = plain(v)
	}
	return picked
}

func trimService(s *corev1.Service) {
	spec := &s.Spec
	for i := range spec.Ports {
		p := &spec.Ports[i]
		spec.Ports[i] = corev1.ServicePort{Name: plain(p.Name), Protocol: plain(p.Protocol), Port: p.Port, NodePort: p.NodePort}
	}
	var affinity *corev1.SessionAffinityConfig
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		affinity = spec.SessionAffinityConfig
	}
	ingress := s.Status.LoadBalancer.Ingress
	for i := range ingress {
		ingress[i] = corev1.LoadBalancerIngress{IP: plain(ingress[i].IP), IPMode: plainAt(ingress[i].IPMode)}
	}
	*s = corev1.Service{
		ObjectMeta: trimMeta(&s.ObjectMeta, serviceLabels, nil),
		Spec: corev1.ServiceSpec{
			Type:                     plain(spec.Type),
			ClusterIP:                plain(spec.ClusterIP),
			ClusterIPs:               plainAll(spec.ClusterIPs),
			IPFamilies:               plainAll(spec.IPFamilies),
			Ports:                    spec.Ports,
			ExternalIPs:              plainAll(spec.ExternalIPs),
			SessionAffinity:          plain(spec.SessionAffinity),
			SessionAffinityConfig:    affinity,
			ExternalTrafficPolicy:    plain(spec.ExternalTrafficPolicy),
			InternalTrafficPolicy:    plainAt(spec.InternalTrafficPolicy),
			HealthCheckNodePort:      spec.HealthCheckNodePort,
			LoadBalancerSourceRanges: plainAll(spec.LoadBalancerSourceRanges),
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
}

func trimEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		s.Ports[i] = discoveryv1.EndpointPort{Name: plainAt(p.Name), Protocol: plainAt(p.Protocol), Port: p.Port}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		// Only the first address is used: an endpoint's others are the same backend (discovery/v1).
		addresses := e.Addresses
		if len(addresses) > 1 {
			addresses = []string{addresses[0]}
		}
		if e.Hints != nil {
			for i := range e.Hints.ForZones {
				e.Hints.ForZones[i].Name = plain(e.Hints.ForZones[i].Name)
			}
			for i := range e.Hints.ForNodes {
				e.Hints.ForNodes[i].Name = plain(e.Hints.ForNodes[i].Name)
			}
		}
		s.Endpoints[i] = discoveryv1.Endpoint{
			Addresses:  plainAll(addresses),
			Conditions: e.Conditions,
			NodeName:   plainAt(e.NodeName),
			Hints:      e.Hints,
		}
	}
	*s = discoveryv1.EndpointSlice{
		ObjectMeta:  trimMeta(&s.ObjectMeta, endpointSliceLabels, []string{corev1.EndpointsLastChangeTriggerTime}),
		AddressType: plain(s.AddressType),
		Ports:       s.Ports,
		Endpoints:   s.Endpoints,
	}
}

func trimNode(n *corev1.Node) {
	for i := range n.Status.Addresses {
		a := &n.Status.Addresses[i]
		a.Type, a.Address = plain(a.Type), plain(a.Address)
	}
	*n = corev1.Node{
		ObjectMeta: trimMeta(&n.ObjectMeta, nodeLabels, nil),
		Spec: corev1.NodeSpec{
			PodCIDR:  plain(n.Spec.PodCIDR),
			PodCIDRs: plainAll(n.Spec.PodCIDRs),
			Taints:   n.Spec.Taints,
		},
		Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
}

func trimServiceCIDR(c *networkingv1.ServiceCIDR) {
	*c = networkingv1.ServiceCIDR{
		ObjectMeta: trimMeta(&c.ObjectMeta, nil, nil),
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: plainAll(c.Spec.CIDRs)},
	}
}
