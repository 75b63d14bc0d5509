package dataplane

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice/agent/source"
	"sluice/proxy"
)

// change is an object that came, changed, or went (Object is nil then).
type change = source.Change

var separator = regexp.MustCompile(`(?m)^---\n`)

// parseObjects reads manifests. Names after a $ become addresses; $bits is the length of an address, and
// $subnet that of a subnet's prefix. What every
// object here has in common may be left out: apiVersion, the namespace default, a slice's
// addressType, the label that joins it to the Service that it is named after (web-1 to web).
func parseObjects(text string, f proxy.Family, names map[string]netip.Addr) ([]change, error) {
	var unknown error
	text = os.Expand(text, func(name string) string {
		switch {
		case name == "subnet":
			return strconv.Itoa(nodeBits(f))
		case name == "bits" && f == proxy.IPv4:
			return "32"
		case name == "bits":
			return "128"
		}
		a, ok := names[name]
		if !ok {
			unknown = fmt.Errorf("no address has the name $%s", name)
		}
		return a.String()
	})
	if unknown != nil {
		return nil, unknown
	}
	var changes []change
	for _, document := range separator.Split(text, -1) {
		if strings.TrimSpace(document) == "" {
			continue
		}
		c, err := parseObject([]byte(document), f)
		if err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func parseObject(document []byte, f proxy.Family) (change, error) {
	var header metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(document, &header); err != nil {
		return change{}, err
	}
	c := change{Kind: source.Kind(header.Kind), Namespace: header.Namespace, Name: header.Name}
	if c.Namespace == "" {
		c.Namespace = metav1.NamespaceDefault
	}
	switch c.Kind {
	case source.Service:
		svc := &corev1.Service{}
		if err := yaml.UnmarshalStrict(document, svc); err != nil {
			return change{}, err
		}
		svc.Namespace = c.Namespace
		if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP != "" {
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
		c.Object = svc
	case source.EndpointSlice:
		slice := &discoveryv1.EndpointSlice{}
		if err := yaml.UnmarshalStrict(document, slice); err != nil {
			return change{}, err
		}
		slice.Namespace = c.Namespace
		if slice.AddressType == "" {
			slice.AddressType = discoveryv1.AddressType(f.String())
		}
		if slice.Labels[discoveryv1.LabelServiceName] == "" {
			if slice.Labels == nil {
				slice.Labels = map[string]string{}
			}
			slice.Labels[discoveryv1.LabelServiceName] = slice.Name[:max(strings.LastIndexByte(slice.Name, '-'), 0)]
		}
		for i := range slice.Ports {
			if slice.Ports[i].Name == nil {
				slice.Ports[i].Name = new(string) // as the API server does
			}
		}
		c.Object = slice
	default:
		return change{}, fmt.Errorf("objects of the kind %q are not used here", c.Kind)
	}
	return c, nil
}
