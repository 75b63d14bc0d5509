package dataplane

// one is a Service whose endpoints the cases below vary.
const one = `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip1, ports: [{port: 80}]}
---
`

// two is one with a NodePort of the policy Local too.
const two = `
kind: Service
metadata: {name: web}
spec: {type: NodePort, externalTrafficPolicy: Local, clusterIP: $vip1, ports: [{port: 80, nodePort: 30080}]}
---
`

var endpointCases = []testCase{
	{
		name: "conditions that are not said",
		objects: two + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {}}
- {addresses: [$pod3], nodeName: node, conditions: {ready: true, serving: true, terminating: false}}
- {addresses: [$far1], nodeName: node2, conditions: {serving: false}}
- {addresses: [$far2], nodeName: node2, conditions: {ready: false}}
`,
		probes: `
pod1    tcp vip1:80    => pod2:8080 pod3:8080 far1:8080 from client
outside tcp node:30080 => pod2:8080 pod3:8080 from client
`,
	},
	{
		name: "terminating endpoints, while others are ready",
		objects: two + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [$pod3], nodeName: node, conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [$far1], nodeName: node2, conditions: {ready: true}}
`,
		probes: `
pod1    tcp vip1:80    => far1:8080 from client
# Among the local ones none is ready, but one serves until it ends.
pod1    tcp node:30080 => far1:8080 from client
outside tcp node:30080 => pod2:8080 from client
`,
		steps: []step{
			{ // none is ready: those that serve while they terminate
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [$pod3], nodeName: node, conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [$far1], nodeName: node2, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [$far2], nodeName: node2, conditions: {ready: false, serving: true, terminating: false}}
`,
				probes: `
pod1    tcp vip1:80    => pod2:8080 far1:8080 from client
outside tcp vip1:80    => pod2:8080 far1:8080 from masqueraded
outside tcp node:30080 => pod2:8080 from client
`,
			},
			{ // none is ready here, and none serves
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [$far1], nodeName: node2, conditions: {ready: true}}
`,
				probes: `
pod1    tcp vip1:80    => far1:8080 from client
outside tcp node:30080 => silence
`,
			},
			{ // none serves anywhere
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [$far1], nodeName: node2, conditions: {ready: false, serving: false}}
`,
				probes: `
pod1    tcp vip1:80    => refused
outside tcp node:30080 => refused
`,
			},
		},
	},
	{
		name: "an endpoint in several slices",
		objects: two + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [$far1], nodeName: node2}
---
kind: EndpointSlice
metadata: {name: web-2}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$far1], nodeName: node2}
---
kind: EndpointSlice
metadata: {name: web-3}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: false, terminating: true}}
`,
		probes: `
pod1    tcp vip1:80    => pod2:8080 far1:8080 from client
outside tcp node:30080 => pod2:8080 from client
`,
		steps: []step{
			{
				remove: "EndpointSlice/web-2",
				probes: `pod1 tcp vip1:80 => far1:8080 from client`,
			},
		},
	},
	{
		name: "slices that do not count",
		objects: one + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
# The first address is the endpoint; the others are the same host's.
- {addresses: [$pod2, $pod3], nodeName: node}
---
kind: EndpointSlice
metadata: {name: web-2, labels: {service.kubernetes.io/headless: ""}}
ports: [{port: 8080}]
endpoints: [{addresses: [$far1], nodeName: node2}]
---
kind: EndpointSlice
metadata: {name: web-3, labels: {kubernetes.io/service-name: other}}
ports: [{port: 8080}]
endpoints: [{addresses: [$far1], nodeName: node2}]
---
kind: EndpointSlice
metadata: {name: web-4, namespace: elsewhere}
ports: [{port: 8080}]
endpoints: [{addresses: [$far1], nodeName: node2}]
---
kind: EndpointSlice
metadata: {name: web-5}
addressType: FQDN
ports: [{port: 8080}]
endpoints: [{addresses: [example.org]}]
---
kind: EndpointSlice
metadata: {name: web-6}
ports: [{port: 0}, {name: other, port: 8081}]
endpoints: [{addresses: [$far1], nodeName: node2}]
---
kind: EndpointSlice
metadata: {name: web-7}
ports: [{}]
endpoints: [{addresses: [$far1], nodeName: node2}]
---
kind: EndpointSlice
metadata: {name: web-8}
ports: [{port: 8080, protocol: UDP}]
endpoints: [{addresses: [$far1], nodeName: node2}]
`,
		probes: `pod1 tcp vip1:80 => pod2:8080 from client`,
	},
	{
		name: "hints for zones",
		objects: two + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, hints: {forZones: [{name: zone-a}, {name: zone-b}]}}
- {addresses: [$pod3], nodeName: node, hints: {forZones: [{name: zone-b}]}}
- {addresses: [$far1], nodeName: node2, hints: {forZones: [{name: zone-a}]}}
# This one is not ready, so that it does not matter that it has no hints.
- {addresses: [$far2], nodeName: node2, conditions: {ready: false}}
`,
		probes: `
pod1    tcp vip1:80    => pod2:8080 far1:8080 from client
outside tcp vip1:80    => pod2:8080 far1:8080 from masqueraded
# Hints are not for the policy Local.
outside tcp node:30080 => pod2:8080 pod3:8080 from client
pod1    tcp node:30080 => pod2:8080 far1:8080 from client
`,
		steps: []step{
			{ // no endpoint is for this zone
				node:   func(n *nodeConfig) { n.Zone = "zone-c" },
				probes: `pod1 tcp vip1:80 => pod2:8080 pod3:8080 far1:8080 from client`,
			},
			{ // the node has no zone
				node:   func(n *nodeConfig) { n.Zone = "" },
				probes: `pod1 tcp vip1:80 => pod2:8080 pod3:8080 far1:8080 from client`,
			},
			{
				node:   func(n *nodeConfig) { n.Zone = "zone-b" },
				probes: `pod1 tcp vip1:80 => pod2:8080 pod3:8080 from client`,
			},
			{ // not all have hints
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, hints: {forZones: [{name: zone-b}]}}
- {addresses: [$far1], nodeName: node2}
`,
				probes: `pod1 tcp vip1:80 => pod2:8080 far1:8080 from client`,
			},
			{ // terminating ones are taken wherever they are
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: true, terminating: true}, hints: {forZones: [{name: zone-b}]}}
- {addresses: [$far1], nodeName: node2, conditions: {ready: false, serving: true, terminating: true}, hints: {forZones: [{name: zone-a}]}}
`,
				probes: `pod1 tcp vip1:80 => pod2:8080 far1:8080 from client`,
			},
		},
	},
	{
		name: "hints for nodes",
		objects: one + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, hints: {forNodes: [{name: node2}], forZones: [{name: zone-a}]}}
- {addresses: [$pod3], nodeName: node, hints: {forNodes: [{name: node}], forZones: [{name: zone-b}]}}
- {addresses: [$far1], nodeName: node2, hints: {forNodes: [{name: node}, {name: node2}], forZones: [{name: zone-a}]}}
`,
		probes: `pod1 tcp vip1:80 => pod3:8080 far1:8080 from client`,
		steps: []step{
			{ // none is for this node: the zone's
				node:   func(n *nodeConfig) { n.Name = "node3" },
				probes: `pod1 tcp vip1:80 => pod2:8080 far1:8080 from client`,
			},
			{ // not all have hints for nodes
				node: func(n *nodeConfig) { n.Name = "node" },
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node, hints: {forZones: [{name: zone-a}]}}
- {addresses: [$pod3], nodeName: node, hints: {forNodes: [{name: node}], forZones: [{name: zone-b}]}}
- {addresses: [$far1], nodeName: node2, hints: {forNodes: [{name: node}], forZones: [{name: zone-a}]}}
`,
				probes: `pod1 tcp vip1:80 => pod2:8080 far1:8080 from client`,
			},
		},
	},
	{
		name: "endpoints whose node is not known are not local",
		objects: two + `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2]}
- {addresses: [$pod3], nodeName: node2}
`,
		probes: `
pod1    tcp vip1:80    => pod2:8080 pod3:8080 from client
outside tcp node:30080 => silence
`,
	},
}
