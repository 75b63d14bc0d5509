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
	ipFamilies       = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	ipFamilyPolicies = []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
)

// validateClusterIPs checks clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy together.
func validateClusterIPs(spec *corev1.ServiceSpec, f *findings) {
	path := specPath.Child("clusterIPs")
	ips := spec.ClusterIPs
	switch {
	case len(ips) == 0:
		f.refuse(field.Required(specPath.Child("clusterIP"),
			"nothing allocates addresses here: give an unused one (for example 10.43.0.10), or None for a headless Service"))
		return
	case spec.ClusterIP == "":
		f.refuse(field.Invalid(path, ips, "must be empty when `clusterIP` is not specified"))
		return
	case ips[0] != spec.ClusterIP:
		f.refuse(field.Invalid(path, ips, "first value must match `clusterIP`"))
		return
	case headless(spec):
		validateHeadless(spec, f)
		return
	case len(ips) > 2:
		f.refuse(field.Invalid(path, ips, "may only hold up to 2 values"))
		return
	}
	before := len(f.refused)
	for i, ip := range ips {
		at := func() *field.Path { return path.Index(i) }
		if a, ok := parseAddr(ip, at, f); ok {
			checkUsable(a, at, f)
		}
	}
	if len(f.refused) > before {
		return // the checks of families would only say the same in other words
	}
	if len(ips) == 2 && isIPv6(ips[0]) == isIPv6(ips[1]) {
		f.refuse(field.Invalid(path, ips, "may specify no more than one IP for each IP family"))
		return
	}
	validateFamilies(spec, f)
}

func validateHeadless(spec *corev1.ServiceSpec, f *findings) {
	path := specPath.Child("clusterIPs")
	if len(spec.ClusterIPs) > 1 {
		f.refuse(field.Invalid(path, spec.ClusterIPs, "'None' must be the first and only value"))
	}
	if t := spec.Type; t != corev1.ServiceTypeClusterIP {
		f.refuse(field.Invalid(path.Index(0), corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", t)))
	}
	validateFamilyValues(spec, f)
}

// validateFamilyValues checks ipFamilies and ipFamilyPolicy each for itself, and tells whether they are right.
func validateFamilyValues(spec *corev1.ServiceSpec, f *findings) bool {
	before := len(f.refused)
	path := specPath.Child("ipFamilies")
	for i, family := range spec.IPFamilies {
		if !slices.Contains(ipFamilies, family) {
			f.refuse(field.NotSupported(path.Index(i), family, ipFamilies))
		} else if slices.Contains(spec.IPFamilies[:i], family) {
			f.refuse(field.Duplicate(path.Index(i), family))
		}
	}
	if p := spec.IPFamilyPolicy; p != nil && !slices.Contains(ipFamilyPolicies, *p) {
		f.refuse(field.NotSupported(specPath.Child("ipFamilyPolicy"), *p, ipFamilyPolicies))
	}
	return len(f.refused) == before
}

func validateFamilies(spec *corev1.ServiceSpec, f *findings) {
	if !validateFamilyValues(spec, f) {
		return
	}
	ips, families := spec.ClusterIPs, spec.IPFamilies
	for i, ip := range ips {
		if (families[i] == corev1.IPv6Protocol) != isIPv6(ip) {
			f.refuse(field.Invalid(specPath.Child("clusterIPs").Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", families[i], i)))
			return
		}
	}
	policy := corev1.IPFamilyPolicySingleStack
	if spec.IPFamilyPolicy != nil {
		policy = *spec.IPFamilyPolicy
	}
	switch single := policy == corev1.IPFamilyPolicySingleStack; {
	case single && len(ips) == 2:
		f.refuse(field.Invalid(specPath.Child("ipFamilyPolicy"), policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	case single && len(families) == 2:
		f.refuse(field.Invalid(specPath.Child("ipFamilyPolicy"), policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	case len(ips) == 1 && (len(families) == 2 || policy == corev1.IPFamilyPolicyRequireDualStack):
		missing := corev1.IPv6Protocol
		if isIPv6(ips[0]) {
			missing = corev1.IPv4Protocol
		}
		f.unserved = append(f.unserved, fmt.Sprintf("%s: Required value: nothing allocates addresses here, so the Service has no %s address; add one",
			specPath.Child("clusterIPs").Index(1), missing))
	}
}

// validateExternalAddresses checks externalIPs, the load balancer's addresses and its source ranges.
func validateExternalAddresses(s *corev1.Service, f *findings) {
	for i, ip := range s.Spec.ExternalIPs {
		at := func() *field.Path { return specPath.Child("externalIPs").Index(i) }
		if a, ok := parseAddr(ip, at, f); ok {
			checkUsable(a, at, f)
		}
	}

	isLoadBalancer := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	path := specPath.Child("loadBalancerSourceRanges")
	if len(s.Spec.LoadBalancerSourceRanges) > 0 && !isLoadBalancer {
		f.refuse(field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		f.refuse(validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(cidr), true, nil)...)
	}

	path = statusPath.Child("loadBalancer", "ingress")
	ingress := s.Status.LoadBalancer.Ingress
	if len(ingress) > 0 && !isLoadBalancer {
		f.refuse(field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
		return
	}
	for i := range ingress {
		mode := ingress[i].IPMode
		if ingress[i].IP == "" {
			if mode != nil {
				f.refuse(field.Forbidden(path.Index(i).Child("ipMode"), "may not be specified when `ip` is not set"))
			}
			continue
		}
		at := func() *field.Path { return path.Index(i).Child("ip") }
		if a, ok := parseAddr(ingress[i].IP, at, f); ok {
			checkUsable(a, at, f)
		}
		if !slices.Contains(ipModes, *mode) {
			f.refuse(field.NotSupported(path.Index(i).Child("ipMode"), *mode, ipModes))
		}
	}
}
