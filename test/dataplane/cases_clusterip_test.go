package dataplane

import "sluice/proxy"

var clusterIPCases = []testCase{
	{
		name: "every protocol",
		objects: `
kind: Service
metadata: {name: web}
spec:
  clusterIP: $vip1
  ports:
  - {name: tcp, port: 80}
  - {name: udp, port: 80, protocol: UDP}
  - {name: sctp, port: 80, protocol: SCTP}
---
kind: EndpointSlice
metadata: {name: web-1}
ports:
- {name: tcp, port: 8080}
- {name: udp, port: 8081, protocol: UDP}
- {name: sctp, port: 8080, protocol: SCTP}
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$pod3], nodeName: node}
- {addresses: [$far1], nodeName: node2}
`,
		probes: `
pod1    tcp,sctp vip1:80 => pod2:8080 pod3:8080 far1:8080 from client
pod1    udp      vip1:80 => pod2:8081 pod3:8081 far1:8081 from client
node    tcp,sctp vip1:80 => pod2:8080 pod3:8080 far1:8080 from masqueraded
node    udp      vip1:80 => pod2:8081 pod3:8081 far1:8081 from masqueraded
outside tcp,sctp vip1:80 => pod2:8080 pod3:8080 far1:8080 from masqueraded
outside udp      vip1:80 => pod2:8081 pod3:8081 far1:8081 from masqueraded
`,
	},
	{
		name: "a pod elsewhere",
		objects: `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip1, ports: [{port: 80}, {name: u, port: 80, protocol: UDP}, {name: s, port: 80, protocol: SCTP}]}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$pod3], nodeName: node}
`,
		probes: `
far1 tcp,udp,sctp vip1:80 => pod2:8080 pod3:8080 from client
`,
	},
	{
		name: "an endpoint in the host network",
		objects: `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip1, ports: [{port: 80}, {name: u, port: 80, protocol: UDP}, {name: s, port: 80, protocol: SCTP}]}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$node], nodeName: node}
`,
		probes: `
pod1    tcp,udp,sctp vip1:80 => node:8080 from client
far1    tcp,udp,sctp vip1:80 => node:8080 from client
outside tcp,udp,sctp vip1:80 => node:8080 from client
node    tcp,udp,sctp vip1:80 => node:8080 from any
`,
	},
	{
		name: "several ports, to ports that differ from slice to slice",
		objects: `
kind: Service
metadata: {name: web}
spec:
  clusterIP: $vip1
  ports:
  - {name: http, port: 80}
  - {name: metrics, port: 9090}
---
kind: EndpointSlice
metadata: {name: web-1}
ports:
- {name: http, port: 8080}
- {name: metrics, port: 8081}
endpoints:
- {addresses: [$pod2], nodeName: node}
---
kind: EndpointSlice
metadata: {name: web-2}
ports:
- {name: http, port: 8081}
- {name: metrics, port: 8080}
endpoints:
- {addresses: [$pod3], nodeName: node}
---
kind: EndpointSlice
metadata: {name: web-3}
ports:
- {name: metrics, port: 8080}
endpoints:
- {addresses: [$far1], nodeName: node2}
`,
		probes: `
pod1 tcp vip1:80   => pod2:8080 pod3:8081 from client
pod1 tcp vip1:9090 => pod2:8081 pod3:8080 far1:8080 from client
`,
	},
	{
		name: "internalTrafficPolicy Local",
		objects: `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip1, internalTrafficPolicy: Local, ports: [{port: 80}, {name: u, port: 80, protocol: UDP}, {name: s, port: 80, protocol: SCTP}]}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$pod2], nodeName: node}
- {addresses: [$far1], nodeName: node2}
`,
		probes: `
pod1    tcp,udp,sctp vip1:80 => pod2:8080 from client
node    tcp,udp,sctp vip1:80 => pod2:8080 from masqueraded
outside tcp,udp,sctp vip1:80 => pod2:8080 from masqueraded
`,
		steps: []step{
			{ // endpoints, and none of them local
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$far1], nodeName: node2}
- {addresses: [$far2]}
`,
				probes: `
pod1    tcp,udp,sctp vip1:80 => silence
node    tcp,udp,sctp vip1:80 => silence
outside tcp,udp,sctp vip1:80 => silence
`,
			},
			{ // none at all
				remove: "EndpointSlice/web-1",
				probes: `
pod1    tcp,udp,sctp vip1:80 => refused
node    tcp,udp,sctp vip1:80 => refused
outside tcp,udp,sctp vip1:80 => refused
`,
			},
		},
	},
	{
		name: "other ports and unallocated addresses",
		objects: `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip1, ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node}
`,
		probes: `
pod1    tcp,udp,sctp vip1:81 => refused
far1    tcp,udp,sctp vip1:81 => refused
node    tcp,udp,sctp vip1:81 => refused
outside tcp,udp,sctp vip1:81 => refused
# The same port of another protocol is another port.
pod1    udp,sctp     vip1:80 => refused
pod1    ping         vip1    => refused
node    ping         vip1    => refused
outside ping         vip1    => refused
pod1    tcp,udp,sctp vip2:80 => silence
far1    tcp,udp,sctp vip2:80 => silence
node    tcp,udp,sctp vip2:80 => silence
outside tcp,udp,sctp vip2:80 => silence
pod1    ping         vip2    => silence
node    ping         vip2    => silence
outside ping         vip2    => silence
`,
		steps: []step{
			{ // with the Service its address becomes an unallocated one
				remove: "Service/web",
				probes: `
pod1    tcp,udp vip1:80 => silence
pod1    tcp     vip1:81 => silence
outside tcp     vip1:80 => silence
`,
			},
		},
	},
	{
		name:   "unallocated addresses, where the ServiceCIDRs are not known",
		except: map[string]string{"kube-proxy": "it keeps a ServiceCIDR that was deleted"},
		node:   func(n *nodeConfig) { n.ServiceCIDRs = nil },
		objects: `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip1, ports: [{port: 80}]}
`,
		probes: `
pod1    tcp,udp vip1:81 => refused
pod1    tcp,udp vip2:80 => unreachable
node    tcp     vip2:80 => unreachable
outside tcp     vip2:80 => unreachable
`,
	},
	{
		name: "no endpoints",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: $vip1
  externalIPs: [$ext1]
  ports:
  - {port: 80, nodePort: 30080}
  - {name: u, port: 80, nodePort: 30080, protocol: UDP}
  - {name: s, port: 80, nodePort: 30080, protocol: SCTP}
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
`,
		probes: `
pod1    tcp,udp,sctp vip1:80    => refused
far1    tcp,udp,sctp vip1:80    => refused
node    tcp,udp,sctp vip1:80    => refused
outside tcp,udp,sctp vip1:80    => refused
pod1    tcp,udp,sctp ext1:80    => refused
node    tcp,udp,sctp ext1:80    => refused
outside tcp,udp,sctp ext1:80    => refused
pod1    tcp,udp,sctp lb1:80     => refused
node    tcp,udp,sctp lb1:80     => refused
outside tcp,udp,sctp lb1:80     => refused
pod1    tcp,udp,sctp node:30080 => refused
node    tcp,udp,sctp node:30080 => refused
outside tcp,udp,sctp node:30080 => refused
`,
		steps: []step{
			{ // they come
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
endpoints:
- {addresses: [$pod2], nodeName: node}
`,
				probes: `
pod1    tcp      vip1:80    => pod2:8080 from client
outside tcp      lb1:80     => pod2:8080 from masqueraded
outside tcp      node:30080 => pod2:8080 from masqueraded
outside udp,sctp node:30080 => refused
`,
			},
			{ // and go
				objects: `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}]
`,
				probes: `
pod1    tcp vip1:80    => refused
outside tcp node:30080 => refused
`,
			},
		},
	},
	{
		name: "a pod reaches itself",
		objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: $vip1
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
- {addresses: [$pod1], nodeName: node}
`,
		probes: `
pod1 tcp,udp,sctp vip1:80    => pod1:8080 from bridge
pod1 tcp,udp,sctp node:30080 => pod1:8080 from bridge
pod1 tcp,udp,sctp lb1:80     => pod1:8080 from bridge
pod2 tcp,udp,sctp vip1:80    => pod1:8080 from client
`,
		steps: []step{
			{
				objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  clusterIP: $vip1
  ports: [{port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
`,
				probes: `
pod1 tcp vip1:80    => pod1:8080 from bridge
pod1 tcp node:30080 => pod1:8080 from bridge
pod1 tcp lb1:80     => pod1:8080 from bridge
pod2 tcp lb1:80     => pod1:8080 from client
`,
			},
			{
				node:   func(n *nodeConfig) { n.Detection = proxy.Detection{} },
				probes: `pod1 tcp vip1:80 => pod1:8080 from bridge`,
			},
		},
	},
	{
		name: "Services that are not for this proxy",
		objects: `
kind: Service
metadata: {name: other, labels: {service.kubernetes.io/service-proxy-name: other}}
spec: {clusterIP: $vip1, externalIPs: [$ext1], ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: other-1}
ports: [{port: 8080}]
endpoints: [{addresses: [$pod2], nodeName: node}]
---
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, externalIPs: [$ext2], ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: headless-1, labels: {service.kubernetes.io/headless: ""}}
ports: [{port: 8080}]
endpoints: [{addresses: [$pod2], nodeName: node}]
---
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: example.org, externalIPs: [$ext3], ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: elsewhere-1}
ports: [{port: 8080}]
endpoints: [{addresses: [$pod2], nodeName: node}]
`,
		probes: `
pod1 tcp vip1:80 => silence
pod1 tcp ext1:80 => unreachable
pod1 tcp ext2:80 => unreachable
pod1 tcp ext3:80 => unreachable
`,
		steps: []step{{ // the other proxy gives it up
			objects: `
kind: Service
metadata: {name: other}
spec: {clusterIP: $vip1, externalIPs: [$ext1], ports: [{port: 80}]}
`,
			probes: `
pod1 tcp vip1:80 => pod2:8080 from client
pod1 tcp ext1:80 => pod2:8080 from masqueraded
`,
		}},
	},
}
