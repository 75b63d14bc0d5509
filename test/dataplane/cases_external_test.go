package dataplane

import "sluice/proxy"

var externalCases = []testCase{
	{
		name: "externalTrafficPolicy Cluster",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: $vip1
  externalIPs: [$ext1, $ext2]
  ports:
  - {port: 80, nodePort: 30080}
  - {name: u, port: 80, nodePort: 30080, protocol: UDP}
  - {name: s, port: 80, nodePort: 30080, protocol: SCTP}
status:
  loadBalancer:
    ingress: [{ip: $lb1}, {ip: $lb2, ipMode: VIP}, {ip: $lb3, ipMode: Proxy}]
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$far1], nodeName: node2}
`,
		probes: `
pod1    tcp,udp,sctp ext1:80    => pod2:8080 far1:8080 from masqueraded
far2    tcp,udp,sctp ext1:80    => pod2:8080 far1:8080 from masqueraded
node    tcp,udp,sctp ext1:80    => pod2:8080 far1:8080 from masqueraded
outside tcp,udp,sctp ext1:80    => pod2:8080 far1:8080 from masqueraded
outside tcp          ext2:80    => pod2:8080 far1:8080 from masqueraded
pod1    tcp,udp,sctp lb1:80     => pod2:8080 far1:8080 from masqueraded
far2    tcp,udp,sctp lb1:80     => pod2:8080 far1:8080 from masqueraded
node    tcp,udp,sctp lb1:80     => pod2:8080 far1:8080 from masqueraded
outside tcp,udp,sctp lb1:80     => pod2:8080 far1:8080 from masqueraded
outside tcp          lb2:80     => pod2:8080 far1:8080 from masqueraded
pod1    tcp,udp,sctp node:30080 => pod2:8080 far1:8080 from masqueraded
far2    tcp,udp,sctp node:30080 => pod2:8080 far1:8080 from masqueraded
node    tcp,udp,sctp node:30080 => pod2:8080 far1:8080 from masqueraded
outside tcp,udp,sctp node:30080 => pod2:8080 far1:8080 from masqueraded
# An address of the mode Proxy is the load balancer's own.
pod1    tcp          lb3:80     => unreachable
outside tcp          lb3:80     => unreachable
# Other ports of these addresses are nobody's.
outside tcp          lb1:81     => unreachable
outside tcp          ext1:81    => unreachable
outside tcp          lb1:30080  => unreachable
outside tcp          node:80    => refused
`,
	},
	{
		name: "externalTrafficPolicy Local",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  clusterIP: $vip1
  externalIPs: [$ext1]
  ports:
  - {port: 80, nodePort: 30080}
  - {name: u, port: 80, nodePort: 30080, protocol: UDP}
  - {name: s, port: 80, nodePort: 30080, protocol: SCTP}
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$pod3], nodeName: node}
- {addresses: [$far1], nodeName: node2}
`,
		probes: `
pod1    tcp,udp,sctp ext1:80    => pod2:8080 pod3:8080 far1:8080 from client
node    tcp,udp,sctp ext1:80    => pod2:8080 pod3:8080 far1:8080 from masqueraded
outside tcp,udp,sctp ext1:80    => pod2:8080 pod3:8080 from client
pod1    tcp,udp,sctp lb1:80     => pod2:8080 pod3:8080 far1:8080 from client
node    tcp,udp,sctp lb1:80     => pod2:8080 pod3:8080 far1:8080 from masqueraded
outside tcp,udp,sctp lb1:80     => pod2:8080 pod3:8080 from client
pod1    tcp,udp,sctp node:30080 => pod2:8080 pod3:8080 far1:8080 from client
node    tcp,udp,sctp node:30080 => pod2:8080 pod3:8080 far1:8080 from masqueraded
outside tcp,udp,sctp node:30080 => pod2:8080 pod3:8080 from client
# The ClusterIP knows nothing of this policy.
pod1    tcp,udp,sctp vip1:80    => pod2:8080 pod3:8080 far1:8080 from client
outside tcp,udp,sctp vip1:80    => pod2:8080 pod3:8080 far1:8080 from masqueraded
`,
		steps: []step{
			{ // none local: to clients from outside another node is to answer
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$far1], nodeName: node2}
`,
				probes: `
pod1    tcp,udp,sctp ext1:80    => far1:8080 from client
node    tcp,udp,sctp ext1:80    => far1:8080 from masqueraded
outside tcp,udp,sctp ext1:80    => silence
pod1    tcp,udp,sctp lb1:80     => far1:8080 from client
node    tcp,udp,sctp lb1:80     => far1:8080 from masqueraded
outside tcp,udp,sctp lb1:80     => silence
pod1    tcp,udp,sctp node:30080 => far1:8080 from client
node    tcp,udp,sctp node:30080 => far1:8080 from masqueraded
outside tcp,udp,sctp node:30080 => silence
outside tcp          vip1:80    => far1:8080 from masqueraded
`,
			},
			{ // local ones alone: pods elsewhere are pods, too
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$node], nodeName: node}
`,
				probes: `
far1    tcp,udp,sctp lb1:80     => pod2:8080 node:8080 from client
far1    tcp,udp,sctp node:30080 => pod2:8080 node:8080 from client
outside tcp,udp,sctp node:30080 => pod2:8080 node:8080 from client
`,
			},
			{ // none at all
				remove: "EndpointSlice/web-1",
				probes: `
pod1    tcp,udp,sctp ext1:80    => refused
outside tcp,udp,sctp ext1:80    => refused
node    tcp,udp,sctp lb1:80     => refused
outside tcp,udp,sctp lb1:80     => refused
pod1    tcp,udp,sctp node:30080 => refused
node    tcp,udp,sctp node:30080 => refused
outside tcp,udp,sctp node:30080 => refused
`,
			},
		},
	},
	{
		name: "both policies Local",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}]
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$far1], nodeName: node2}
`,
		probes: `
pod1    tcp vip1:80    => pod2:8080 from client
outside tcp vip1:80    => pod2:8080 from masqueraded
pod1    tcp node:30080 => pod2:8080 far1:8080 from client
node    tcp node:30080 => pod2:8080 far1:8080 from masqueraded
outside tcp node:30080 => pod2:8080 from client
`,
	},
	{
		name: "NodePort addresses",
		objects: `
kind: Service
metadata: {name: web}
spec: {type: NodePort, clusterIP: $vip1, ports: [{port: 80, nodePort: 30080}, {name: u, port: 80, nodePort: 30080, protocol: UDP}]}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}]
endpoints: [{addresses: [$pod2], nodeName: node}]
`,
		probes: `
outside tcp,udp node:30080     => pod2:8080 from masqueraded
outside tcp,udp alias:30080    => refused
pod1    tcp,udp bridge:30080   => refused
node    tcp,udp loopback:30080 => refused
`,
		steps: []step{
			{ // all
				node: func(n *nodeConfig) { n.NodePortAddrs = n.Addrs },
				probes: `
outside tcp,udp node:30080     => pod2:8080 from masqueraded
outside tcp,udp alias:30080    => pod2:8080 from masqueraded
pod1    tcp,udp bridge:30080   => pod2:8080 from masqueraded
node    tcp,udp bridge:30080   => pod2:8080 from masqueraded
node    tcp,udp loopback:30080 => refused
`,
			},
			{ // another one
				node: func(n *nodeConfig) { n.NodePortAddrs = n.Addrs[1:2] },
				probes: `
outside tcp,udp node:30080   => refused
outside tcp,udp alias:30080  => pod2:8080 from masqueraded
pod1    tcp,udp bridge:30080 => refused
`,
			},
			{ // none
				node: func(n *nodeConfig) { n.NodePortAddrs = nil },
				probes: `
outside tcp node:30080  => refused
outside tcp alias:30080 => refused
pod1    tcp vip1:80     => pod2:8080 from client
`,
			},
		},
	},
	{
		name: "loadBalancerSourceRanges",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [$outside/$bits, " $pod1/$bits"]
  clusterIP: $vip1
  externalIPs: [$ext1]
  ports:
  - {port: 80, nodePort: 30080}
  - {name: u, port: 80, nodePort: 30080, protocol: UDP}
  - {name: s, port: 80, nodePort: 30080, protocol: SCTP}
status: {loadBalancer: {ingress: [{ip: $lb1}, {ip: $lb2}]}}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints: [{addresses: [$pod2], nodeName: node}]
`,
		probes: `
outside          tcp,udp,sctp lb1:80     => pod2:8080 from masqueraded
outside          tcp          lb2:80     => pod2:8080 from masqueraded
outside@outside2 tcp,udp,sctp lb1:80     => silence
outside@outside2 tcp          lb2:80     => silence
pod1             tcp,udp,sctp lb1:80     => pod2:8080 from masqueraded
pod3             tcp,udp,sctp lb1:80     => silence
node             tcp,udp,sctp lb1:80     => silence
# They hold for the load balancer's addresses alone.
outside@outside2 tcp,udp,sctp vip1:80    => pod2:8080 from masqueraded
outside@outside2 tcp,udp,sctp ext1:80    => pod2:8080 from masqueraded
outside@outside2 tcp,udp,sctp node:30080 => pod2:8080 from masqueraded
pod3             tcp          vip1:80    => pod2:8080 from client
`,
		steps: []step{
			{ // ranges that hold each other, and the node
				objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [$node/$subnet, $outside/$bits]
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
`,
				probes: `
outside          tcp lb1:80 => pod2:8080 from masqueraded
outside@outside2 tcp lb1:80 => pod2:8080 from masqueraded
node             tcp lb1:80 => pod2:8080 from masqueraded
pod1             tcp lb1:80 => silence
`,
			},
			{ // everything
				objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [$outside/$bits, 0.0.0.0/0, "::/0"]
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
`,
				probes: `
outside@outside2 tcp lb1:80 => pod2:8080 from masqueraded
pod1             tcp lb1:80 => pod2:8080 from masqueraded
`,
			},
		},
	},
	{
		name: "loadBalancerSourceRanges with externalTrafficPolicy Local",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  loadBalancerSourceRanges: [$outside/$bits]
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints: [{addresses: [$pod2], nodeName: node}, {addresses: [$far1], nodeName: node2}]
`,
		probes: `
outside          tcp lb1:80     => pod2:8080 from client
outside@outside2 tcp lb1:80     => silence
pod1             tcp lb1:80     => silence
node             tcp lb1:80     => silence
outside@outside2 tcp node:30080 => pod2:8080 from client
`,
	},
	{
		name: "loadBalancerSourceRanges, and the VIP as the node's own source",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [$node/$bits]
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
---
kind: Service
metadata: {name: strict}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [$outside/$bits]
  clusterIP: $vip2
  ports: [{port: 80, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: $lb2}]}}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints: [{addresses: [$pod2], nodeName: node}]
---
kind: EndpointSlice
metadata: {name: strict-1}
ports: [{port: 8080}]
endpoints: [{addresses: [$pod2], nodeName: node}]
`,
		check: func(r *run) {
			// As cloud providers do: the VIPs are local addresses.
			for _, vip := range []string{"lb1", "lb2"} {
				add := []string{"address", "add", r.names[vip].String(), "dev", "lo"}
				if r.family == proxy.IPv6 {
					add = append(add, "nodad") // usable at once
				}
				r.command("ip", add...)
				defer r.command("ip", "address", "delete", r.names[vip].String(), "dev", "lo")
			}
			r.probe(`
node@lb1 tcp lb1:80 => pod2:8080 from masqueraded
node@lb2 tcp lb2:80 => silence
outside  tcp lb2:80 => pod2:8080 from masqueraded
`)
		},
	},
}
