package files

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The checks are those that the API server makes (Kubernetes 1.37) of the fields
// that are read. Paths are built only for what is wrong, as most objects are right.

var (
	metadataPath = field.NewPath("metadata")
	specPath     = field.NewPath("spec")
	statusPath   = field.NewPath("status")
)

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// validateMeta checks an object's name and namespace. isName is the check of the kind's names.
func validateMeta(m *metav1.ObjectMeta, namespaced bool, isName func(string) []string, f *findings) {
	if m.Name == "" {
		f.refuse(field.Required(metadataPath.Child("name"), "give the object a name"))
	} else {
		for _, msg := range isName(m.Name) {
			f.refuse(field.Invalid(metadataPath.Child("name"), m.Name, msg))
		}
	}
	switch {
	case m.Namespace == "":
	case !namespaced:
		f.refuse(field.Forbidden(metadataPath.Child("namespace"), "not allowed on this type"))
	default:
		for _, msg := range validation.IsDNS1123Label(m.Namespace) {
			f.refuse(field.Invalid(metadataPath.Child("namespace"), m.Namespace, msg))
		}
	}
}

// parseAddr parses an IP address in a field at the path that the function gives.
// Like the API server it takes no leading zeros and no IPv4-mapped IPv6 address.
func parseAddr(s string, path func() *field.Path, f *findings) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err == nil && !a.Is4In6() && a.Zone() == "" {
		return a, true
	}
	f.refuse(validation.IsValidIPForLegacyField(path(), s, true, nil)...)
	return netip.Addr{}, false
}

// checkUsable refuses addresses that can be neither a frontend nor an endpoint.
func checkUsable(a netip.Addr, path func() *field.Path, f *findings) {
	var why string
	switch {
	case a.IsUnspecified():
		why = fmt.Sprintf("may not be unspecified (%v)", a)
	case a.IsLoopback():
		why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case a.IsLinkLocalUnicast():
		why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case a.IsMulticast():
		why = "may not be in the multicast range (224.0.0.0/4, ff00::/8)"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "may not be the broadcast address"
	default:
		return
	}
	f.refuse(field.Invalid(path(), a.String(), why))
}

// checkPort refuses port numbers outside 1 to 65535.
func checkPort(port int32, path func() *field.Path, f *findings) {
	for _, msg := range validation.IsValidPortNum(int(port)) {
		f.refuse(field.Invalid(path(), port, msg))
	}
}

func checkProtocol(p corev1.Protocol, path func() *field.Path, f *findings) {
	for _, known := range protocols {
		if p == known {
			return
		}
	}
	f.refuse(field.NotSupported(path(), p, protocols))
}

// isIPv6 tells the family of an address or CIDR that was checked.
func isIPv6(s string) bool { return strings.Contains(s, ":") }

func validateNode(n *corev1.Node, f *findings) {
	validateMeta(&n.ObjectMeta, false, validation.IsDNS1123Subdomain, f)
	path := specPath.Child("podCIDRs")
	cidrs := n.Spec.PodCIDRs
	for i, cidr := range cidrs {
		f.refuse(validation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(cidrs) > 2 || len(cidrs) == 2 && isIPv6(cidrs[0]) == isIPv6(cidrs[1]) {
		f.refuse(field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	if n.Spec.PodCIDR != "" && len(cidrs) > 0 && n.Spec.PodCIDR != cidrs[0] {
		f.refuse(field.Invalid(specPath.Child("podCIDR"), n.Spec.PodCIDR, "must be the first of `podCIDRs`"))
	}
	for i := range n.Status.Addresses {
		a := &n.Status.Addresses[i]
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			parseAddr(a.Address, func() *field.Path { return statusPath.Child("addresses").Index(i).Child("address") }, f)
		}
	}
}

func validateServiceCIDR(c *networkingv1.ServiceCIDR, f *findings) {
	validateMeta(&c.ObjectMeta, false, validation.IsDNS1123Subdomain, f)
	path := specPath.Child("cidrs")
	cidrs := c.Spec.CIDRs
	switch {
	case len(cidrs) == 0:
		f.refuse(field.Required(path, "at least one CIDR required"))
		return
	case len(cidrs) > 2:
		f.refuse(field.Invalid(path, cidrs, "may only hold up to 2 values"))
		return
	}
	for i, cidr := range cidrs {
		f.refuse(validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(cidrs) == 2 && isIPv6(cidrs[0]) == isIPv6(cidrs[1]) {
		f.refuse(field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
}
