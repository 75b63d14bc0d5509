package source

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is left of an object has no text that could begin a line or steer a terminal.
func TestTrimLeavesPlainTexts(t *testing.T) {
	const bad = "x\n-A INPUT\x1b[2J\x00\xff\u202e"
	for _, obj := range []metav1.Object{
		&corev1.Service{
			Spec: corev1.ServiceSpec{
				Type: bad, ClusterIP: bad, ClusterIPs: []string{bad}, IPFamilies: []corev1.IPFamily{bad}, ExternalIPs: []string{bad},
				Ports: []corev1.ServicePort{{Name: bad, Protocol: bad}}, SessionAffinity: bad, ExternalTrafficPolicy: bad,
				InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicy(bad)), LoadBalancerSourceRanges: []string{bad},
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: bad, IPMode: ptr(corev1.LoadBalancerIPMode(bad))}}}},
		},
		&discoveryv1.EndpointSlice{
			AddressType: bad, Ports: []discoveryv1.EndpointPort{{Name: ptr(bad), Protocol: ptr(corev1.Protocol(bad))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{bad}, NodeName: ptr(bad), Hints: &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: bad}}, ForNodes: []discoveryv1.ForNode{{Name: bad}},
			}}},
		},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: bad}},
			Spec:       corev1.NodeSpec{PodCIDR: bad, PodCIDRs: []string{bad}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: bad, Address: bad}}},
		},
	} {
		Trim(obj)
		text, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), `\`) || strings.ContainsFunc(string(text), func(r rune) bool { return !isPlain(r) }) {
			t.Errorf("%T: %s", obj, text)
		}
		if !strings.Contains(string(text), "x?-A INPUT?[2J????") && !strings.Contains(string(text), "x?-A INPUT?[2J???") {
			t.Errorf("%T: what was plain is gone: %s", obj, text)
		}
	}
}

// A time that no text can hold would make all that names it an error.
func TestTrimLeavesTimesThatCanBeWritten(t *testing.T) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for given, want := range map[metav1.Time]metav1.Time{
		now:                             now,
		metav1.Unix(1<<62, 0):           metav1.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC),
		metav1.Unix(253_402_300_800, 0): metav1.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC),
		metav1.Unix(-1<<40, 0):          {},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: given}}
		Trim(svc)
		if !svc.CreationTimestamp.Equal(&want) {
			t.Errorf("%v became %v, want %v", given.Unix(), svc.CreationTimestamp, want)
		}
		if _, err := json.Marshal(svc.CreationTimestamp.Time); err != nil {
			t.Error(err)
		}
	}
}
