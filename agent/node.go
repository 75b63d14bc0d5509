package agent

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/config"
	"sluice/agent/nodeaddr"
	"sluice/agent/source"
	"sluice/proxy"
)

// nodePlanner turns the configuration, the node's addresses and its Node object
// into what planning needs to know of the node.
type nodePlanner struct {
	name          string
	masqueradeAll bool
	nodePorts     proxy.NodePortSelector
	detection     proxy.DetectionFlags
	externalIPs   string
	server        netip.Addr // the API server's in the kubeconfig, if it is an address
	changed       bool       // the node's addresses did, or that one
}

// setServer notes the address by which this node reaches its API server. It can be that of a load balancer before several.
func (n *nodePlanner) setServer(addr netip.Addr) {
	if n.server != addr {
		n.server, n.changed = addr, true
	}
}

func newNodePlanner(cfg *config.Config) (nodePlanner, error) {
	selector, err := proxy.ParseNodePortAddresses(cfg.NodePortAddresses)
	if err != nil {
		return nodePlanner{}, err
	}
	return nodePlanner{
		name: cfg.NodeName, masqueradeAll: cfg.MasqueradeAll, nodePorts: selector, externalIPs: cfg.ExternalIPs,
		detection: proxy.DetectionFlags{Mode: cfg.DetectLocalMode, ClusterCIDRs: cfg.ClusterCIDRs,
			BridgeInterface: cfg.PodBridgeInterface, InterfaceNamePrefix: cfg.PodInterfaceNamePrefix},
	}, nil
}

// apiServerService is the Service whose endpoints are the API servers.
var apiServerService = source.Name{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// plan returns the node and the settings of a family, and which local detection was chosen and why. servers are the EndpointSlices of
// the API servers.
func (n *nodePlanner) plan(f proxy.Family, facts *nodeaddr.Facts, object *corev1.Node, cidrs []*networkingv1.ServiceCIDR, servers []*discoveryv1.EndpointSlice) (proxy.Node, proxy.Settings, string) {
	node := proxy.Node{Family: f, Name: n.name, MasqueradeAll: n.masqueradeAll, LocalhostNodePorts: n.nodePorts.Localhost(f), ExternalIPs: n.externalIPs}
	for _, a := range facts.All() {
		if proxy.FamilyOf(a) == f {
			node.Addrs = append(node.Addrs, a)
		}
	}
	var podCIDRs []string
	if object != nil {
		node.Zone = object.Labels[corev1.LabelTopologyZone]
		podCIDRs = object.Spec.PodCIDRs
		if len(podCIDRs) == 0 && object.Spec.PodCIDR != "" {
			podCIDRs = []string{object.Spec.PodCIDR}
		}
	}
	node.NodePortAddrs = n.nodePorts.Addrs(f, node.Addrs, primaryAddr(f, facts, object))
	detection, why, err := n.detection.Select(f, podCIDRs)
	if err != nil { // the configuration was checked before: only what depends on the Node is left
		why = err.Error()
	}
	settings := proxy.Settings{Detection: detection, ServiceCIDRs: serviceCIDRs(f, cidrs)}
	if n.externalIPs == proxy.ExternalIPsForeign {
		node.Taken = slices.Concat(settings.ServiceCIDRs, n.detection.ClusterCIDRs, detection.PodCIDRs, apiServers(servers))
		if n.server.IsValid() {
			node.Taken = append(node.Taken, netip.PrefixFrom(n.server, n.server.BitLen()))
		}
	}
	return node, settings, why
}

// apiServers are their addresses, each as a range.
func apiServers(slices []*discoveryv1.EndpointSlice) (list []netip.Prefix) {
	for _, s := range slices {
		for i := range s.Endpoints {
			for _, text := range s.Endpoints[i].Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					list = append(list, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	return list
}

// primaryAddr is the node's first InternalIP of the family, as long as the node
// has that address; else what its routes say. After a DHCP change the
// kernel knows the new address before the Node object does.
func primaryAddr(f proxy.Family, facts *nodeaddr.Facts, node *corev1.Node) netip.Addr {
	if node != nil {
		for _, a := range node.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err != nil || a.Type != corev1.NodeInternalIP || proxy.FamilyOf(ip) != f {
				continue
			}
			if slices.Contains(facts.All(), ip) {
				return ip
			}
			break
		}
	}
	return facts.Primary(f)
}

func serviceCIDRs(f proxy.Family, objects []*networkingv1.ServiceCIDR) []netip.Prefix {
	var all []netip.Prefix
	for _, c := range objects {
		for _, s := range c.Spec.CIDRs {
			if p, err := netip.ParsePrefix(s); err == nil && proxy.FamilyOf(p.Addr()) == f {
				all = append(all, p.Masked())
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

func sameNode(a, b *proxy.Node) bool {
	return a.Family == b.Family && a.Name == b.Name && a.Zone == b.Zone && a.MasqueradeAll == b.MasqueradeAll &&
		a.LocalhostNodePorts == b.LocalhostNodePorts && a.ExternalIPs == b.ExternalIPs && slices.Equal(a.Taken, b.Taken) &&
		slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.NodePortAddrs, b.NodePortAddrs)
}
