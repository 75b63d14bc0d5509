package source

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func ptr[T any](v T) *T { return &v }

// fullMeta has every field set; trimmedMeta is what is read of it, but for labels and annotations.
func fullMeta() metav1.ObjectMeta {
	m := trimmedMeta()
	m.GenerateName = "web-"
	m.Generation = 7
	m.DeletionGracePeriodSeconds = ptr(int64(30))
	m.OwnerReferences = []metav1.OwnerReference{{Kind: "Service", Name: "web"}}
	m.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	m.Labels = map[string]string{
		"app": "web",
		"service.kubernetes.io/service-proxy-name": "other",
		"service.kubernetes.io/headless":           "",
		"kubernetes.io/service-name":               "web",
		"topology.kubernetes.io/zone":              "a",
		"topology.kubernetes.io/region":            "r",
	}
	m.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
		"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z",
	}
	return m
}

func trimmedMeta() metav1.ObjectMeta {
	at := metav1.NewTime(time.Unix(1700000000, 0))
	return metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "u-1", ResourceVersion: "42",
		CreationTimestamp: at, DeletionTimestamp: &at,
	}
}

func TestTrim(t *testing.T) {
	withLabels := func(labels map[string]string) metav1.ObjectMeta {
		m := trimmedMeta()
		m.Labels = labels
		return m
	}
	sliceMeta := withLabels(map[string]string{
		"kubernetes.io/service-name":     "web",
		"service.kubernetes.io/headless": "",
	})
	sliceMeta.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z"}

	tests := []struct {
		name      string
		obj, want metav1.Object
	}{
		{
			name: "Service",
			obj: &corev1.Service{
				TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
				ObjectMeta: fullMeta(),
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"},
					IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack),
					Ports: []corev1.ServicePort{{
						Name: "http", Protocol: corev1.ProtocolTCP, AppProtocol: ptr("http"), Port: 80,
						TargetPort: intstr.FromInt32(8080), NodePort: 30080,
					}},
					Selector: map[string]string{"app": "web"}, ExternalIPs: []string{"192.0.2.1"},
					SessionAffinity:       corev1.ServiceAffinityClientIP,
					SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(60))}},
					LoadBalancerIP:        "192.0.2.9", LoadBalancerClass: ptr("x"), LoadBalancerSourceRanges: []string{"192.0.2.0/24"},
					ExternalName: "example.org", ExternalTrafficPolicy: "Local", InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicyLocal),
					HealthCheckNodePort: 32000, PublishNotReadyAddresses: true, AllocateLoadBalancerNodePorts: ptr(true),
					TrafficDistribution: ptr("PreferClose"),
				},
				Status: corev1.ServiceStatus{
					LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{
						IP: "192.0.2.9", IPMode: ptr(corev1.LoadBalancerIPModeVIP), Hostname: "lb", Ports: []corev1.PortStatus{{Port: 80}},
					}}},
					Conditions: []metav1.Condition{{Type: "Ready"}},
				},
			},
			want: &corev1.Service{
				ObjectMeta: withLabels(map[string]string{"service.kubernetes.io/service-proxy-name": "other"}),
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"},
					IPFamilies:  []corev1.IPFamily{corev1.IPv4Protocol},
					Ports:       []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
					ExternalIPs: []string{"192.0.2.1"}, SessionAffinity: corev1.ServiceAffinityClientIP,
					SessionAffinityConfig:    &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(60))}},
					LoadBalancerSourceRanges: []string{"192.0.2.0/24"}, ExternalTrafficPolicy: "Local",
					InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicyLocal), HealthCheckNodePort: 32000,
				},
				Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{
					IP: "192.0.2.9", IPMode: ptr(corev1.LoadBalancerIPModeVIP),
				}}}},
			},
		},
		{
			name: "EndpointSlice",
			obj: &discoveryv1.EndpointSlice{
				TypeMeta:    metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
				ObjectMeta:  fullMeta(),
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8080)), AppProtocol: ptr("http")}},
				Endpoints: []discoveryv1.Endpoint{{
					Addresses:  []string{"10.42.0.5", "10.42.0.6"},
					Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
					Hostname:   ptr("web-0"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
					DeprecatedTopology: map[string]string{"x": "y"}, NodeName: ptr("node-1"), Zone: ptr("a"),
					Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "node-1"}}},
				}},
			},
			want: &discoveryv1.EndpointSlice{
				ObjectMeta:  sliceMeta,
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8080))}},
				Endpoints: []discoveryv1.Endpoint{{
					Addresses:  []string{"10.42.0.5"},
					Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
					NodeName:   ptr("node-1"),
					Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "node-1"}}},
				}},
			},
		},
		{
			name: "Node",
			obj: &corev1.Node{
				TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
				ObjectMeta: fullMeta(),
				Spec: corev1.NodeSpec{
					PodCIDR: "10.42.0.0/24", PodCIDRs: []string{"10.42.0.0/24"}, ProviderID: "k3s://x", Unschedulable: true,
					Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}},
				},
				Status: corev1.NodeStatus{
					Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}},
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}},
					Images:     []corev1.ContainerImage{{Names: []string{"x"}}},
					NodeInfo:   corev1.NodeSystemInfo{KernelVersion: "6.1"},
				},
			},
			want: &corev1.Node{
				ObjectMeta: withLabels(map[string]string{"topology.kubernetes.io/zone": "a"}),
				Spec: corev1.NodeSpec{
					PodCIDR: "10.42.0.0/24", PodCIDRs: []string{"10.42.0.0/24"},
					Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}},
				},
				Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}},
			},
		},
		{
			name: "ServiceCIDR",
			obj: &networkingv1.ServiceCIDR{
				TypeMeta:   metav1.TypeMeta{Kind: "ServiceCIDR", APIVersion: "networking.k8s.io/v1"},
				ObjectMeta: fullMeta(),
				Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.43.0.0/16"}},
				Status:     networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{{Type: "Ready"}}},
			},
			want: &networkingv1.ServiceCIDR{
				ObjectMeta: withLabels(nil),
				Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.43.0.0/16"}},
			},
		},
		{
			name: "an annotation that is no time",
			obj: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				"endpoints.kubernetes.io/last-change-trigger-time": strings.Repeat("9", 1000),
			}}},
			want: &discoveryv1.EndpointSlice{},
		},
		{
			name: "Service without affinity loses a leftover timeout",
			obj: &corev1.Service{Spec: corev1.ServiceSpec{
				SessionAffinity:       corev1.ServiceAffinityNone,
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(60))}},
			}},
			want: &corev1.Service{Spec: corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityNone}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			Trim(tt.obj)
			if diff := cmp.Diff(tt.want, tt.obj); diff != "" {
				t.Errorf("Trim (-want +got):\n%s", diff)
			}
		})
	}
}
