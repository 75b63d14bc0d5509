package files

import (
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The API server's limits for an EndpointSlice (Kubernetes 1.37). Its limit of
// endpoints is only noted: where no controller splits slices, they grow longer.
const (
	maxSlicePorts     = 20000
	maxSliceEndpoints = 1000
	maxAddresses      = 100 // of one endpoint
	maxHints          = 8   // of one endpoint, for zones and for nodes each
)

var addressTypes = []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}

func validateEndpointSlice(s *discoveryv1.EndpointSlice, f *findings) {
	validateMeta(&s.ObjectMeta, true, validation.IsDNS1123Subdomain, f)
	if s.AddressType == "" {
		f.refuse(field.Required(field.NewPath("addressType"), "IPv4 or IPv6"))
	} else if !slices.Contains(addressTypes, s.AddressType) {
		f.refuse(field.NotSupported(field.NewPath("addressType"), s.AddressType, addressTypes))
	}
	validateSlicePorts(s.Ports, f)
	if n := len(s.Endpoints); n > maxSliceEndpoints {
		f.notes = append(f.notes, fmt.Sprintf("endpoints: %d endpoints in one EndpointSlice; an API server would take %d at most", n, maxSliceEndpoints))
	}
	for i := range s.Endpoints {
		validateEndpoint(&s.Endpoints[i], s.AddressType, func() *field.Path { return field.NewPath("endpoints").Index(i) }, f)
	}
	if s.Labels[discoveryv1.LabelServiceName] == "" && len(f.refused) == 0 {
		f.unserved = append(f.unserved, fmt.Sprintf("%s: Required value: it names the Service that the endpoints belong to; without it they are not used",
			metadataPath.Child("labels").Key(discoveryv1.LabelServiceName)))
	}
}

func validateSlicePorts(ports []discoveryv1.EndpointPort, f *findings) {
	path := field.NewPath("ports")
	if len(ports) > maxSlicePorts {
		f.refuse(field.TooMany(path, len(ports), maxSlicePorts))
		return
	}
	names := make(map[string]struct{}, len(ports))
	for i := range ports {
		p := &ports[i]
		if _, double := names[*p.Name]; double {
			f.refuse(field.Duplicate(path.Index(i).Child("name"), *p.Name))
		}
		names[*p.Name] = struct{}{}
		if *p.Name != "" {
			for _, msg := range validation.IsDNS1123Label(*p.Name) {
				f.refuse(field.Invalid(path.Index(i).Child("name"), *p.Name, msg))
			}
		}
		checkProtocol(*p.Protocol, func() *field.Path { return path.Index(i).Child("protocol") }, f)
		if p.Port != nil && *p.Port != 0 { // 0 means that the port is not used
			checkPort(*p.Port, func() *field.Path { return path.Index(i).Child("port") }, f)
		}
	}
}

func validateEndpoint(e *discoveryv1.Endpoint, addressType discoveryv1.AddressType, path func() *field.Path, f *findings) {
	if n := len(e.Addresses); n == 0 {
		f.refuse(field.Required(path().Child("addresses"), "must contain at least 1 address"))
	} else if n > maxAddresses {
		f.refuse(field.TooMany(path().Child("addresses"), n, maxAddresses))
		return
	}
	for i, address := range e.Addresses {
		validateAddress(address, addressType, func() *field.Path { return path().Child("addresses").Index(i) }, f)
	}
	if e.NodeName != nil {
		checkName(*e.NodeName, validation.IsDNS1123Subdomain, func() *field.Path { return path().Child("nodeName") }, f)
	}
	if e.Hints == nil {
		return
	}
	hints := func(name string) *field.Path { return path().Child("hints", name) }
	if n := len(e.Hints.ForZones); n > maxHints {
		f.refuse(field.TooMany(hints("forZones"), n, maxHints))
	}
	for i := range e.Hints.ForZones {
		checkName(e.Hints.ForZones[i].Name, validation.IsValidLabelValue, func() *field.Path { return hints("forZones").Index(i).Child("name") }, f)
	}
	if n := len(e.Hints.ForNodes); n > maxHints {
		f.refuse(field.TooMany(hints("forNodes"), n, maxHints))
	}
	for i := range e.Hints.ForNodes {
		checkName(e.Hints.ForNodes[i].Name, validation.IsDNS1123Subdomain, func() *field.Path { return hints("forNodes").Index(i).Child("name") }, f)
	}
}

func validateAddress(address string, addressType discoveryv1.AddressType, path func() *field.Path, f *findings) {
	switch addressType {
	case discoveryv1.AddressTypeFQDN:
		f.refuse(validation.IsFullyQualifiedDomainName(path(), address)...)
		return
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
	default:
		return
	}
	a, ok := parseAddr(address, path, f)
	if !ok {
		return
	}
	switch {
	case addressType == discoveryv1.AddressTypeIPv4 && !a.Is4():
		f.refuse(field.Invalid(path(), address, "must be an IPv4 address"))
	case addressType == discoveryv1.AddressTypeIPv6 && !a.Is6():
		f.refuse(field.Invalid(path(), address, "must be an IPv6 address"))
	case a.String() != address:
		f.refuse(validation.IsValidIP(path(), address)...)
	default:
		checkUsable(a, path, f)
	}
}

func checkName(name string, check func(string) []string, path func() *field.Path, f *findings) {
	for _, msg := range check(name) {
		f.refuse(field.Invalid(path(), name, msg))
	}
}
