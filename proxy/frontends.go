package proxy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// address is one address of a Service, with the Kind that it has.
type address struct {
	addr netip.Addr
	kind Kind
}

// served tells whether a Service is for this proxy at all.
func served(svc *corev1.Service) bool {
	// Another proxy was asked to serve it (KEP-2447).
	if _, other := svc.Labels["service.kubernetes.io/service-proxy-name"]; other {
		return false
	}
	return svc.Spec.Type != corev1.ServiceTypeExternalName
}

// clusterIP returns the Service's clusterIP of a family as it is written, or ""
// if it has none there or is headless.
func clusterIP(svc *corev1.Service, f Family) string {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	if ips[0] == "" || ips[0] == corev1.ClusterIPNone {
		return ""
	}
	name := corev1.IPv4Protocol
	if f == IPv6 {
		name = corev1.IPv6Protocol
	}
	if i := slices.Index(svc.Spec.IPFamilies, name); i >= 0 {
		if i < len(ips) {
			return ips[i]
		}
		return ""
	}
	if len(svc.Spec.IPFamilies) > 0 {
		return ""
	}
	for _, ip := range ips {
		if a, ok := parseAddr(ip); ok && FamilyOf(a) == f {
			return ip
		}
	}
	return ""
}

// addresses lists the addresses that the Service's ports are served at, each
// once and in the order of Kind, without those of NodePorts. An address that is
// an externalIP and a VIP of the load balancer is the latter, so that source ranges hold.
func (p *planner) addresses(clusterIP string) []address {
	external, vips := p.svc.Spec.ExternalIPs, p.svc.Status.LoadBalancer.Ingress
	list := make([]address, 0, 1+len(external)+len(vips))
	add := func(field, s string, k Kind) {
		a, ok := parseAddr(s)
		switch {
		case !ok:
			p.ignore("%s: %q is not an IP address", field, s)
		case FamilyOf(a) != p.node.Family:
			if k == ClusterIP {
				p.ignore("%s: %q is not an %v address", field, s, p.node.Family)
			}
		case !routable(a):
			p.ignore("%s: %s is not an address that can be served", field, s)
		default:
			i := slices.IndexFunc(list, func(have address) bool { return have.addr == a })
			if i < 0 {
				list = append(list, address{a, k})
			} else if list[i].kind == ExternalIP {
				list[i].kind = k
			}
		}
	}
	add("clusterIP", clusterIP, ClusterIP)
	for _, ip := range external {
		if ip != "" && p.mayHave(ip) {
			add("externalIPs", ip, ExternalIP)
		}
	}
	for _, vip := range vips {
		// A load balancer of the mode Proxy sends to NodePorts or pods: its address stays its own (KEP-1860).
		if vip.IP != "" && (vip.IPMode == nil || *vip.IPMode == corev1.LoadBalancerIPModeVIP) {
			add("status.loadBalancer.ingress", vip.IP, LoadBalancerIP)
		}
	}
	slices.SortStableFunc(list, func(a, b address) int { return int(a.kind) - int(b.kind) })
	return list
}

// mayHave tells whether a Service may have an address that it names in externalIPs.
func (p *planner) mayHave(ip string) bool {
	a, ok := parseAddr(ip)
	switch n := p.node; {
	case !ok || FamilyOf(a) != n.Family || n.ExternalIPs == ExternalIPsAll || n.ExternalIPs == "":
		return true
	case n.ExternalIPs == ExternalIPsNone:
		p.ignore("externalIPs: %v: --external-ips none serves none", a)
	case slices.Contains(n.Addrs, a):
		p.ignore("externalIPs: %v is an address of this node, which --external-ips foreign does not serve", a)
	case containsAddr(n.Taken, a):
		p.ignore("externalIPs: %v is the API server's, or in a range of Services or pods, which --external-ips foreign does not serve", a)
	default:
		return true
	}
	return false
}

// frontendsOf lists the frontends of one Service port, each once.
func (p *planner) frontendsOf(port *corev1.ServicePort, protocol Protocol) []kindFrontend {
	list := make([]kindFrontend, 0, len(p.addrs)+len(p.node.NodePortAddrs))
	for _, a := range p.addrs {
		list = append(list, kindFrontend{Frontend{a.addr, uint16(port.Port), protocol}, a.kind})
	}
	if !validPort(port.NodePort) {
		if port.NodePort != 0 {
			p.ignore("port %q: nodePort %d is outside 1-65535", port.Name, port.NodePort)
		}
		return list
	}
	for _, a := range p.node.NodePortAddrs {
		f := Frontend{a, uint16(port.NodePort), protocol}
		if !slices.ContainsFunc(list, func(have kindFrontend) bool { return have.Frontend == f }) {
			list = append(list, kindFrontend{f, NodePort})
		}
	}
	return list
}

func validPort(n int32) bool { return n > 0 && n <= 65535 }

type kindFrontend struct {
	Frontend
	kind Kind
}

// internalLocal tells whether clients of the ClusterIP get only endpoints of their own node.
func internalLocal(svc *corev1.Service) bool {
	policy := svc.Spec.InternalTrafficPolicy
	return policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal
}

// externalLocal tells whether clients from outside get only endpoints of the node
// that they reach. The policy counts only in Services that are reachable from
// outside, as the API server does not clear it in all cases.
func externalLocal(svc *corev1.Service) bool {
	if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return len(svc.Spec.ExternalIPs) > 0
}

// maxAffinity is the longest timeoutSeconds that the API server allows: one day.
const maxAffinity = 86400

// affinityTimeout is the time of session affinity in seconds; 0 is none.
func affinityTimeout(svc *corev1.Service) uint32 {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && *c.ClientIP.TimeoutSeconds > 0 {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return uint32(min(seconds, maxAffinity))
}
