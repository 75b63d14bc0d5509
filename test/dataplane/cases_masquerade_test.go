package dataplane

import (
	"net/netip"

	"sluice/proxy"
	"sluice/test/lab"
)

// web is a Service with every kind of address, and two endpoints on node.
const web = `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}, {name: u, port: 80, nodePort: 30080, protocol: UDP}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$pod3], nodeName: node}
`

// local is the same with externalTrafficPolicy Local, at other addresses and with an endpoint elsewhere.
const local = `
---
kind: Service
metadata: {name: local}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  clusterIP: $vip2
  ports: [{port: 80, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: $lb2}]}}
---
kind: EndpointSlice
metadata: {name: local-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$far1], nodeName: node2}
`

var masqueradeCases = []testCase{
	{
		name:    "masqueradeAll",
		node:    func(n *nodeConfig) { n.MasqueradeAll = true },
		objects: web,
		probes: `
pod1    tcp,udp vip1:80 => pod2:8080 pod3:8080 from masqueraded
far1    tcp,udp vip1:80 => pod2:8080 pod3:8080 from masqueraded
node    tcp,udp vip1:80 => pod2:8080 pod3:8080 from masqueraded
outside tcp,udp vip1:80 => pod2:8080 pod3:8080 from masqueraded
`,
		steps: []step{{
			node:   func(n *nodeConfig) { n.MasqueradeAll = false },
			probes: `pod1 tcp,udp vip1:80 => pod2:8080 pod3:8080 from client`,
		}},
	},
	{
		name: "detection by ClusterCIDR and NodeCIDR",
		node: func(n *nodeConfig) {
			// The pods of this node alone: as NodeCIDR has it.
			n.Detection.Mode = proxy.DetectNodeCIDR
			n.Detection.PodCIDRs = []netip.Prefix{netip.PrefixFrom(n.Addrs[2], nodeBits(n.Family)).Masked()}
		},
		objects: web + local,
		probes: `
pod1    tcp,udp vip1:80    => pod2:8080 pod3:8080 from client
far1    tcp,udp vip1:80    => pod2:8080 pod3:8080 from masqueraded
node    tcp,udp vip1:80    => pod2:8080 pod3:8080 from masqueraded
outside tcp,udp vip1:80    => pod2:8080 pod3:8080 from masqueraded
pod1    tcp     lb2:80     => pod2:8080 far1:8080 from client
far2    tcp     lb2:80     => pod2:8080 from client
node    tcp     lb2:80     => pod2:8080 far1:8080 from masqueraded
outside tcp     node:30081 => pod2:8080 from client
`,
		steps: []step{{
			node: func(n *nodeConfig) {
				n.Detection.Mode = proxy.DetectClusterCIDR
				n.Detection.PodCIDRs = []netip.Prefix{lab.ClusterCIDRs[n.Family]}
			},
			probes: `
pod1 tcp,udp vip1:80 => pod2:8080 pod3:8080 from client
far1 tcp,udp vip1:80 => pod2:8080 pod3:8080 from client
`,
		}},
	},
	{
		name:   "detection by several CIDRs",
		except: map[string]string{"kube-proxy": "it takes one CIDR for each family"},
		node: func(n *nodeConfig) {
			n.Detection.PodCIDRs = []netip.Prefix{
				netip.PrefixFrom(n.Addrs[2], nodeBits(n.Family)).Masked(),
				netip.PrefixFrom(lab.ExternalCIDRs[n.Family].Addr(), lab.ExternalCIDRs[n.Family].Bits()),
			}
		},
		objects: web,
		probes: `
pod1    tcp vip1:80 => pod2:8080 pod3:8080 from client
far1    tcp vip1:80 => pod2:8080 pod3:8080 from masqueraded
outside tcp vip1:80 => pod2:8080 pod3:8080 from masqueraded
`,
	},
	{
		name:    "no detection",
		node:    func(n *nodeConfig) { n.Detection = proxy.Detection{} },
		objects: web + local,
		probes: `
# Nothing is masqueraded on the way to a ClusterIP.
pod1    tcp,udp vip1:80    => pod2:8080 pod3:8080 from client
far1    tcp,udp vip1:80    => pod2:8080 pod3:8080 from client
node    tcp,udp vip1:80    => pod2:8080 pod3:8080 from node
outside tcp,udp vip1:80    => pod2:8080 pod3:8080 from client
pod1    tcp,udp lb1:80     => pod2:8080 pod3:8080 from masqueraded
outside tcp,udp lb1:80     => pod2:8080 pod3:8080 from masqueraded
# No client is a pod, but node itself is known.
pod1    tcp     lb2:80     => pod2:8080 from client
node    tcp     lb2:80     => pod2:8080 far1:8080 from masqueraded
outside tcp     lb2:80     => pod2:8080 from client
pod1    tcp     node:30081 => pod2:8080 from client
`,
	},
	{
		name: "detection by BridgeInterface",
		node: func(n *nodeConfig) {
			n.Detection = proxy.Detection{Mode: proxy.DetectBridgeInterface, Interface: lab.CNIBridge}
		},
		objects: web + local,
		probes:  byInterface,
		steps: []step{
			{ // the whole name counts
				node:   func(n *nodeConfig) { n.Detection.Interface = lab.CNIBridge[:3] },
				probes: `pod1 tcp vip1:80 => pod2:8080 pod3:8080 from masqueraded`,
			},
		},
	},
	{
		name: "detection by InterfaceNamePrefix",
		node: func(n *nodeConfig) {
			n.Detection = proxy.Detection{Mode: proxy.DetectInterfaceNamePrefix, Interface: lab.CNIBridge[:3]}
		},
		objects: web + local,
		probes:  byInterface,
		steps: []step{
			{
				node:   func(n *nodeConfig) { n.Detection.Interface = "veth" },
				probes: `pod1 tcp vip1:80 => pod2:8080 pod3:8080 from masqueraded`,
			},
		},
	},
}

// byInterface are the probes where a pod is what comes in from the bridge.
const byInterface = `
pod1    tcp,udp vip1:80    => pod2:8080 pod3:8080 from client
far1    tcp,udp vip1:80    => pod2:8080 pod3:8080 from masqueraded
node    tcp,udp vip1:80    => pod2:8080 pod3:8080 from masqueraded
outside tcp,udp vip1:80    => pod2:8080 pod3:8080 from masqueraded
pod1    tcp     lb2:80     => pod2:8080 far1:8080 from client
far2    tcp     lb2:80     => pod2:8080 from client
node    tcp     lb2:80     => pod2:8080 far1:8080 from masqueraded
outside tcp     lb2:80     => pod2:8080 from client
`

// nodeBits is the length of a node's pod CIDR.
func nodeBits(f proxy.Family) int {
	if f == proxy.IPv6 {
		return 64
	}
	return 24
}
