package proxy

import "net/netip"

// The values of --proxy-mode.
const (
	// ModeAuto takes the best writer that the kernel has the features for.
	ModeAuto = "auto"
	// ModeNFTables writes nftables rules.
	ModeNFTables = "nftables"
	// ModeIPTables writes iptables rules, for kernels without nf_tables.
	ModeIPTables = "iptables"
)

// The values of --external-ips: which of the externalIPs of Services are served. Who may create a Service may name any address
// there (CVE-2020-8554).
const (
	// ExternalIPsAll serves all, as Kubernetes does.
	ExternalIPsAll = "all"
	// ExternalIPsForeign serves none that is an address of this node, of the API server, or of the cluster's Services and pods.
	ExternalIPsForeign = "foreign"
	// ExternalIPsNone serves none.
	ExternalIPsNone = "none"
)

// DetectMode says how a pod of the cluster is told from other sources. The
// names are kube-proxy's (--detect-local-mode).
type DetectMode string

// The modes of local detection.
const (
	// DetectNone tells nothing: no source counts as a pod.
	DetectNone DetectMode = ""
	// DetectClusterCIDR takes the addresses in --cluster-cidr for pods.
	DetectClusterCIDR DetectMode = "ClusterCIDR"
	// DetectNodeCIDR takes the addresses in the Node's podCIDRs for pods.
	DetectNodeCIDR DetectMode = "NodeCIDR"
	// DetectBridgeInterface takes what comes in through one bridge for pods.
	DetectBridgeInterface DetectMode = "BridgeInterface"
	// DetectInterfaceNamePrefix takes what comes in through interfaces of that name prefix for pods.
	DetectInterfaceNamePrefix DetectMode = "InterfaceNamePrefix"
)

// Detection is how a writer tells pods from other sources, in one family.
type Detection struct {
	Mode DetectMode
	// PodCIDRs, for the modes ClusterCIDR and NodeCIDR.
	PodCIDRs []netip.Prefix
	// Interface is the bridge's name or the name prefix, for the other modes.
	Interface string
}

// Node is what planning knows of this node, in one family.
type Node struct {
	Family Family
	// Name is compared with the nodeName of endpoints and with their node hints.
	Name string
	// Zone is the node's topology.kubernetes.io/zone label; empty if it has none.
	Zone string
	// Addrs are all addresses of this node except loopback and link-local ones.
	Addrs []netip.Addr
	// NodePortAddrs are those of Addrs that serve NodePorts.
	NodePortAddrs []netip.Addr
	// LocalhostNodePorts asks for ServicePlan.Localhost.
	LocalhostNodePorts bool
	// MasqueradeAll replaces the source of every flow to a ClusterIP.
	MasqueradeAll bool
	// ExternalIPs is one of the values of --external-ips; empty is ExternalIPsAll.
	ExternalIPs string
	// Taken are ranges that no externalIP may be in with ExternalIPsForeign, beside Addrs.
	Taken []netip.Prefix
}

// Settings are the parts of the desired state that belong to no Service.
type Settings struct {
	Detection Detection
	// ServiceCIDRs are the ranges ClusterIPs come from: an address in them that no Service has is dropped.
	ServiceCIDRs []netip.Prefix
}
