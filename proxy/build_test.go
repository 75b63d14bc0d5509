package proxy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests write addresses of both families as one template: "svc1" is an
// address of the Service range, and so on. expand gives the family's own.
var addrs = map[Family]map[string]string{
	IPv4: {"cluster": "10.96.0.%d", "ext": "192.0.2.%d", "lb": "198.51.100.%d", "node": "192.168.1.%d", "pod": "10.42.0.%d"},
	IPv6: {"cluster": "fd00:96::%d", "ext": "2001:db8:2::%d", "lb": "2001:db8:3::%d", "node": "2001:db8:1::%d", "pod": "fd00:42::%d"},
}

// ip expands e.g. "pod7" in a family.
func ip(f Family, name string) string {
	kind := strings.TrimRight(name, "0123456789")
	var n int
	fmt.Sscanf(name[len(kind):], "%d", &n)
	return fmt.Sprintf(addrs[f][kind], n)
}

func ipAddr(f Family, name string) netip.Addr { return netip.MustParseAddr(ip(f, name)) }

// at expands e.g. "pod7:80".
func at(f Family, s string) netip.AddrPort {
	name, port, _ := strings.Cut(s, ":")
	var n uint16
	fmt.Sscanf(port, "%d", &n)
	return netip.AddrPortFrom(ipAddr(f, name), n)
}

// ats expands a list with blanks between.
func ats(f Family, s string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, one := range strings.Fields(s) {
		list = append(list, at(f, one))
	}
	return list
}

func ipAddrs(f Family, s string) []netip.Addr {
	var list []netip.Addr
	for _, one := range strings.Fields(s) {
		list = append(list, ipAddr(f, one))
	}
	return list
}

func prefixes(f Family, s string) []netip.Prefix {
	var list []netip.Prefix
	for _, one := range strings.Fields(s) {
		if a, ok := strings.CutSuffix(one, "/HOST"); ok {
			addr := ipAddr(f, a)
			list = append(list, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		list = append(list, netip.MustParsePrefix(one))
	}
	return list
}

func familyName(f Family) corev1.IPFamily {
	if f == IPv6 {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func addressType(f Family) discoveryv1.AddressType { return discoveryv1.AddressType(familyName(f)) }

func testNode(f Family) *Node {
	return &Node{
		Family:        f,
		Name:          "here",
		Zone:          "zone-a",
		Addrs:         ipAddrs(f, "node1 node2"),
		NodePortAddrs: ipAddrs(f, "node1"),
	}
}

// testService is web, a Service of type ClusterIP with the port "http" 80/TCP.
func testService(f Family) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  ip(f, "cluster1"),
			ClusterIPs: []string{ip(f, "cluster1")},
			IPFamilies: []corev1.IPFamily{familyName(f)},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// testSlice reads endpoints like "pod1 pod2@here,notready pod3,zone=zone-b,node=here" into
// a slice of web with the port "http" 8080/TCP.
func testSlice(f Family, name, endpoints string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: addressType(f),
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	for _, s := range strings.Fields(endpoints) {
		words := strings.Split(s, ",")
		who, node, onNode := strings.Cut(words[0], "@")
		ep := discoveryv1.Endpoint{Addresses: []string{ip(f, who)}}
		if onNode {
			ep.NodeName = &node
		}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			if ep.Hints == nil && (key == "zone" || key == "node") {
				ep.Hints = &discoveryv1.EndpointHints{}
			}
			switch key {
			case "ready":
				ep.Conditions.Ready = new(true)
			case "notready":
				ep.Conditions.Ready = new(false)
			case "serving":
				ep.Conditions.Serving = new(true)
			case "notserving":
				ep.Conditions.Serving = new(false)
			case "terminating":
				ep.Conditions.Terminating = new(true)
			case "draining": // as a pod that ends and still serves
				ep.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
			case "zone":
				ep.Hints.ForZones = append(ep.Hints.ForZones, discoveryv1.ForZone{Name: value})
			case "node":
				ep.Hints.ForNodes = append(ep.Hints.ForNodes, discoveryv1.ForNode{Name: value})
			default:
				panic("endpoint " + s + ": what is " + word + "?")
			}
		}
		slice.Endpoints = append(slice.Endpoints, ep)
	}
	return slice
}

// describe prints a plan in one line per frontend, with template names for the
// addresses, so that both families print the same.
func describe(f Family, plan *ServicePlan) string {
	if plan == nil {
		return "not served\n"
	}
	var b strings.Builder
	for _, fr := range plan.Frontends {
		r := fr.Route
		fmt.Fprintf(&b, "%v %v/%v %v -> %v", r.Kind, netip.AddrPortFrom(fr.Addr, fr.Port), fr.Protocol, r.Port, r.Pool.Slots)
		if r.LocalPool != nil {
			fmt.Fprintf(&b, " local %v", r.LocalPool.Slots)
		}
		fmt.Fprintf(&b, " masquerade %v empty %v", r.Masquerade, r.WhenEmpty)
		if r.Others != nil {
			fmt.Fprintf(&b, " others %v", r.Others)
		}
		if r.Affinity != 0 {
			fmt.Fprintf(&b, " affinity %d", r.Affinity)
		}
		if r.SourceRanges != nil {
			fmt.Fprintf(&b, " from %v", r.SourceRanges)
		}
		b.WriteByte('\n')
	}
	if plan.ClusterIPs != nil {
		fmt.Fprintf(&b, "cluster IPs %v\n", plan.ClusterIPs)
	}
	if plan.LocalEndpoints != nil {
		fmt.Fprintf(&b, "local endpoints %v\n", plan.LocalEndpoints)
	}
	if h := plan.HealthCheck; h != nil {
		fmt.Fprintf(&b, "health check %d: %d\n", h.Port, h.LocalEndpoints)
	}
	for _, s := range plan.Ignored {
		fmt.Fprintf(&b, "ignored: %s\n", s)
	}
	return named(f, b.String())
}

// named puts the template names back.
func named(f Family, s string) string {
	s = strings.ReplaceAll(s, f.String(), "IPvX")
	return strings.TrimSuffix(replacers[f].Replace(s+"\n"), "\n")
}

var replacers = map[Family]*strings.Replacer{IPv4: newReplacer(IPv4), IPv6: newReplacer(IPv6)}

func newReplacer(f Family) *strings.Replacer {
	loopback := f.Loopback().String()
	pairs := []string{fmt.Sprintf("/%d]", f.Loopback().BitLen()), "/HOST]"}
	for _, end := range []string{" ", "\"", "\n"} {
		pairs = append(pairs, loopback+end, "LOOPBACK"+end, linkLocal[f]+end, "LINKLOCAL"+end)
	}
	for kind, format := range addrs[f] {
		for n := 1; n < 100; n++ {
			a := fmt.Sprintf(format, n)
			pairs = append(pairs, "["+a+"]:", kind+fmt.Sprint(n)+":")
			for _, end := range []string{":", " ", "]", "\n", "\""} {
				pairs = append(pairs, a+end, kind+fmt.Sprint(n)+end)
			}
			pairs = append(pairs, a+fmt.Sprintf("/%d]", f.Loopback().BitLen()), kind+fmt.Sprint(n)+"/HOST]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// compareAddrs lets cmp look into addresses.
var compareAddrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}
