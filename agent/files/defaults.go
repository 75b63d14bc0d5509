package files

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// defaultService sets what the API server sets in a Service that leaves it out, as far as it is read.
func defaultService(s *corev1.Service) {
	spec := &s.Spec
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		if spec.Ports[i].Protocol == "" {
			spec.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	switch spec.SessionAffinity {
	case "":
		spec.SessionAffinity = corev1.ServiceAffinityNone
	case corev1.ServiceAffinityClientIP:
		c := spec.SessionAffinityConfig
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			timeout := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}
	}
	if spec.ExternalTrafficPolicy == "" && externallyAccessible(spec) {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && spec.Type != corev1.ServiceTypeExternalName {
		cluster := corev1.ServiceInternalTrafficPolicyCluster
		spec.InternalTrafficPolicy = &cluster
	}
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if !headless(spec) {
		for i := len(spec.IPFamilies); i < len(spec.ClusterIPs); i++ {
			family := corev1.IPv4Protocol
			if strings.Contains(spec.ClusterIPs[i], ":") {
				family = corev1.IPv6Protocol
			}
			spec.IPFamilies = append(spec.IPFamilies, family)
		}
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" && ingress.IPMode == nil {
			vip := corev1.LoadBalancerIPModeVIP
			ingress.IPMode = &vip
		}
	}
}

// externallyAccessible tells whether clients from outside the cluster can reach the Service.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

func headless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		if s.Ports[i].Name == nil {
			s.Ports[i].Name = new(string)
		}
		if s.Ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			s.Ports[i].Protocol = &tcp
		}
	}
}

func defaultNode(n *corev1.Node) {
	if n.Spec.PodCIDR != "" && len(n.Spec.PodCIDRs) == 0 {
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	}
}
