package files

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	serviceTypes     = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort}
	affinities       = []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}
	externalPolicies = []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal}
	internalPolicies = []corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}
	ipModes          = []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}
)

func validateService(s *corev1.Service, f *findings) {
	validateMeta(&s.ObjectMeta, true, validation.IsDNS1123Label, f)
	spec := &s.Spec
	if !slices.Contains(serviceTypes, spec.Type) {
		f.refuse(field.NotSupported(specPath.Child("type"), spec.Type, serviceTypes))
		return // most of what follows depends on it
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		validateExternalName(spec, f)
		return
	}
	validateClusterIPs(spec, f)
	validateServicePorts(spec, f)
	validateAffinity(spec, f)
	validateExternalAddresses(s, f)
	validatePolicies(spec, f)
}

// validateExternalName checks a Service that is a DNS name only, which no proxy serves.
func validateExternalName(spec *corev1.ServiceSpec, f *findings) {
	if len(spec.ClusterIPs) > 0 {
		f.refuse(field.Forbidden(specPath.Child("clusterIPs"), "may not be set for ExternalName services"))
	}
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		f.refuse(field.Required(specPath.Child("externalName"), "the DNS name that the Service stands for"))
		return
	}
	checkName(name, validation.IsDNS1123Subdomain, func() *field.Path { return specPath.Child("externalName") }, f)
}

func validateServicePorts(spec *corev1.ServiceSpec, f *findings) {
	path := specPath.Child("ports")
	if len(spec.Ports) == 0 && !headless(spec) {
		f.refuse(field.Required(path, "a Service needs at least one port"))
	}
	type protocolPort struct {
		protocol corev1.Protocol
		port     int32
	}
	n := len(spec.Ports)
	names, ports, nodePorts := make(map[string]struct{}, n), make(map[protocolPort]struct{}, n), make(map[protocolPort]struct{}, n)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		at := func(name string) func() *field.Path {
			return func() *field.Path { return path.Index(i).Child(name) }
		}
		if p.Name == "" {
			if n > 1 {
				f.refuse(field.Required(path.Index(i).Child("name"), "where there are several ports each needs a name"))
			}
		} else {
			checkName(p.Name, validation.IsDNS1123Label, at("name"), f)
			if _, double := names[p.Name]; double {
				f.refuse(field.Duplicate(path.Index(i).Child("name"), p.Name))
			}
			names[p.Name] = struct{}{}
		}
		checkPort(p.Port, at("port"), f)
		checkProtocol(p.Protocol, at("protocol"), f)
		if _, double := ports[protocolPort{p.Protocol, p.Port}]; double {
			f.refuse(field.Duplicate(path.Index(i), fmt.Sprintf("%s %d", p.Protocol, p.Port)))
		}
		ports[protocolPort{p.Protocol, p.Port}] = struct{}{}

		if p.NodePort == 0 {
			if spec.Type == corev1.ServiceTypeNodePort {
				f.unserved = append(f.unserved, fmt.Sprintf("%s: Required value: nothing allocates node ports here, so this port has none; give it a free one (usually 30000-32767)", at("nodePort")()))
			}
			continue
		}
		if spec.Type == corev1.ServiceTypeClusterIP {
			f.refuse(field.Forbidden(path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			continue
		}
		checkPort(p.NodePort, at("nodePort"), f)
		if _, double := nodePorts[protocolPort{p.Protocol, p.NodePort}]; double {
			f.refuse(field.Duplicate(path.Index(i).Child("nodePort"), p.NodePort))
		}
		nodePorts[protocolPort{p.Protocol, p.NodePort}] = struct{}{}
	}
}

// maxAffinitySeconds is the longest session affinity that the API server allows: one day.
const maxAffinitySeconds = 86400

func validateAffinity(spec *corev1.ServiceSpec, f *findings) {
	if !slices.Contains(affinities, spec.SessionAffinity) {
		f.refuse(field.NotSupported(specPath.Child("sessionAffinity"), spec.SessionAffinity, affinities))
	}
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return
	}
	timeout := *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds
	if timeout <= 0 || timeout > maxAffinitySeconds {
		f.refuse(field.Invalid(specPath.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), timeout,
			fmt.Sprintf("must be greater than 0 and at most %d", maxAffinitySeconds)))
	}
}

func validatePolicies(spec *corev1.ServiceSpec, f *findings) {
	path := specPath.Child("externalTrafficPolicy")
	switch {
	case !externallyAccessible(spec):
		if spec.ExternalTrafficPolicy != "" {
			f.refuse(field.Invalid(path, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
		}
	case !slices.Contains(externalPolicies, spec.ExternalTrafficPolicy):
		f.refuse(field.NotSupported(path, spec.ExternalTrafficPolicy, externalPolicies))
	}
	if p := spec.InternalTrafficPolicy; !slices.Contains(internalPolicies, *p) {
		f.refuse(field.NotSupported(specPath.Child("internalTrafficPolicy"), *p, internalPolicies))
	}

	path = specPath.Child("healthCheckNodePort")
	switch needed := spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal; {
	case spec.HealthCheckNodePort != 0 && !needed:
		f.refuse(field.Invalid(path, spec.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case spec.HealthCheckNodePort != 0:
		checkPort(spec.HealthCheckNodePort, func() *field.Path { return path }, f)
	case needed:
		f.notes = append(f.notes, path.String()+": not set, and nothing allocates one here: the Service has no health check for load balancers")
	}
}
