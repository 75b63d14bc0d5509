package dataplane

import (
	"strings"
	"time"

	"sluice/test/lab"
)

// endpointsOf is the slice web-1 with the given hosts as its endpoints.
func endpointsOf(hosts ...string) string {
	text := "kind: EndpointSlice\nmetadata: {name: web-1}\nports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}]\nendpoints:\n"
	for _, host := range hosts {
		node := "node"
		if strings.HasPrefix(host, "far") {
			node = "node2"
		}
		text += "- {addresses: [$" + host + "], nodeName: " + node + "}\n"
	}
	return text
}

// allKinds is a Service with every kind of address.
const allKinds = `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: $vip1
  externalIPs: [$ext1]
  ports: [{port: 80, nodePort: 30080}, {name: u, port: 80, nodePort: 30080, protocol: UDP}]
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
---
`

var changeCases = []testCase{
	{
		name:    "endpoints come, go and are replaced",
		objects: allKinds + endpointsOf("pod2"),
		probes:  `pod1 tcp vip1:80 => pod2:8080 from client`,
		steps: []step{
			{
				objects: endpointsOf("pod2", "pod3", "far1", "far2"),
				probes: `
pod1    tcp vip1:80    => pod2:8080 pod3:8080 far1:8080 far2:8080 from client
outside udp node:30080 => pod2:8080 pod3:8080 far1:8080 far2:8080 from masqueraded
`,
			},
			{
				objects: endpointsOf("pod3", "far1", "far2"),
				probes:  `pod1 tcp,udp vip1:80 => pod3:8080 far1:8080 far2:8080 from client`,
			},
			{
				objects: endpointsOf("pod3", "pod2", "far2"),
				probes: `
pod1    tcp,udp vip1:80    => pod3:8080 pod2:8080 far2:8080 from client
outside tcp,udp lb1:80     => pod3:8080 pod2:8080 far2:8080 from masqueraded
outside tcp,udp ext1:80    => pod3:8080 pod2:8080 far2:8080 from masqueraded
outside tcp,udp node:30080 => pod3:8080 pod2:8080 far2:8080 from masqueraded
`,
			},
			{
				objects: endpointsOf(),
				probes: `
pod1    tcp,udp vip1:80    => refused
outside tcp,udp node:30080 => refused
`,
			},
			{
				objects: endpointsOf("far1"),
				probes:  `pod1 tcp,udp vip1:80 => far1:8080 from client`,
			},
		},
	},
	{
		name:    "a Service goes, and comes back",
		objects: allKinds + endpointsOf("pod2"),
		probes:  `outside tcp lb1:80 => pod2:8080 from masqueraded`,
		steps: []step{
			{
				remove: "Service/web",
				probes: `
pod1    tcp,udp vip1:80    => silence
outside tcp,udp ext1:80    => unreachable
outside tcp,udp lb1:80     => unreachable
outside tcp,udp node:30080 => refused
`,
			},
			{
				objects: allKinds,
				probes: `
pod1    tcp,udp vip1:80    => pod2:8080 from client
outside tcp,udp ext1:80    => pod2:8080 from masqueraded
outside tcp,udp lb1:80     => pod2:8080 from masqueraded
outside tcp,udp node:30080 => pod2:8080 from masqueraded
`,
			},
		},
	},
	{
		name:    "a Service changes its type, ports, addresses and policies",
		objects: allKinds + endpointsOf("pod2", "far1"),
		probes:  `outside tcp lb1:80 => pod2:8080 far1:8080 from masqueraded`,
		steps: []step{
			{ // other addresses and numbers
				objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: $vip2
  externalIPs: [$ext2]
  ports: [{port: 81, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: $lb2}]}}
`,
				probes: `
pod1    tcp vip1:80    => silence
outside tcp ext1:80    => unreachable
outside tcp lb1:80     => unreachable
outside tcp node:30080 => refused
pod1    tcp vip2:80    => refused
pod1    udp vip2:81    => refused
pod1    tcp vip2:81    => pod2:8080 far1:8080 from client
outside tcp ext2:81    => pod2:8080 far1:8080 from masqueraded
outside tcp lb2:81     => pod2:8080 far1:8080 from masqueraded
outside tcp node:30081 => pod2:8080 far1:8080 from masqueraded
`,
			},
			{ // the policy Local
				objects: `
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  clusterIP: $vip2
  ports: [{port: 81, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: $lb2}]}}
`,
				probes: `
outside tcp ext2:81    => unreachable
outside tcp lb2:81     => pod2:8080 from client
outside tcp node:30081 => pod2:8080 from client
pod1    tcp node:30081 => pod2:8080 far1:8080 from client
`,
			},
			{ // Cluster again, and the type ClusterIP
				objects: `
kind: Service
metadata: {name: web}
spec: {clusterIP: $vip2, internalTrafficPolicy: Local, ports: [{port: 81}]}
`,
				probes: `
outside tcp lb2:81     => unreachable
outside tcp node:30081 => refused
pod1    tcp vip2:81    => pod2:8080 from client
`,
			},
		},
	},
	{
		name:   "two Services claim the same addresses: the older one has them",
		except: map[string]string{"kube-proxy": "it lets chance decide"},
		objects: `
kind: Service
metadata: {name: web, creationTimestamp: "2024-01-01T00:00:00Z"}
spec: {type: NodePort, clusterIP: $vip1, externalIPs: [$ext1], ports: [{port: 80, nodePort: 30080}]}
---
kind: Service
metadata: {name: younger, creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {type: NodePort, clusterIP: $vip2, externalIPs: [$ext1], ports: [{port: 80, nodePort: 30080}]}
---
kind: EndpointSlice
metadata: {name: younger-1}
ports: [{port: 8081}]
endpoints: [{addresses: [$pod3], nodeName: node}]
---
` + endpointsOf("pod2"),
		probes: `
outside tcp ext1:80    => pod2:8080 from masqueraded
outside tcp node:30080 => pod2:8080 from masqueraded
pod1    tcp vip2:80    => pod3:8081 from client
`,
		steps: []step{
			{ // the younger one changes
				objects: `
kind: EndpointSlice
metadata: {name: younger-1}
ports: [{port: 8081}]
endpoints: [{addresses: [$pod2], nodeName: node}, {addresses: [$pod3], nodeName: node}]
`,
				probes: `
outside tcp ext1:80    => pod2:8080 from masqueraded
pod1    tcp vip2:80    => pod2:8081 pod3:8081 from client
`,
			},
			{ // the older one gives up its NodePort
				objects: `
kind: Service
metadata: {name: web, creationTimestamp: "2024-01-01T00:00:00Z"}
spec: {clusterIP: $vip1, externalIPs: [$ext1], ports: [{port: 80}]}
`,
				probes: `
outside tcp ext1:80    => pod2:8080 from masqueraded
outside tcp node:30080 => pod2:8081 pod3:8081 from masqueraded
`,
			},
			{ // and ends
				remove: "Service/web",
				probes: `outside tcp ext1:80 => pod2:8081 pod3:8081 from masqueraded`,
			},
			{ // an older one comes
				objects: `
kind: Service
metadata: {name: web, creationTimestamp: "2024-01-01T00:00:00Z"}
spec: {type: NodePort, clusterIP: $vip1, externalIPs: [$ext1], ports: [{port: 80, nodePort: 30080}]}
`,
				probes: `
outside tcp ext1:80    => pod2:8080 from masqueraded
outside tcp node:30080 => pod2:8080 from masqueraded
`,
			},
		},
	},
	{
		name:    "connections go on",
		objects: allKinds + endpointsOf("pod2", "pod3"),
		check: func(r *run) {
			open := map[string]*lab.Session{}
			for _, from := range []string{"pod1", "node", "outside"} {
				for _, to := range []string{"vip1:80", "node:30080", "lb1:80"} {
					session := r.open(from, "tcp", to)
					defer session.Close()
					open[from+" to "+to] = session
				}
			}
			goOn := func(when string) {
				for name, session := range open {
					if result := session.Ask(); result.Kind != lab.Reached {
						r.t.Errorf("the connection from %s %s: %s", name, when, result)
					}
				}
			}
			goOn("at the beginning")
			r.change("", endpointsOf("pod2", "pod3", "far1"))
			goOn("when an endpoint has come")
			r.change("", endpointsOf("far1"))
			goOn("when its endpoint gets no new connections any more")
			r.must(r.subject.Restart(r.ctx))
			goOn("after a restart")
			r.change("Service/web", "")
			goOn("when the Service is gone")
		},
	},
	{
		name:    "UDP flows to an endpoint that is gone move",
		except:  map[string]string{"kube-proxy": "it leaves flows to a NodePort whose last endpoint is gone"},
		objects: allKinds + endpointsOf("pod2"),
		check: func(r *run) {
			open := map[string]*lab.Session{}
			for _, from := range []string{"pod1", "node", "outside"} {
				for _, to := range []string{"vip1:80", "node:30080", "lb1:80", "ext1:80"} {
					session := r.open(from, "udp", to)
					defer session.Close()
					open[from+" to "+to] = session
				}
			}
			reach := func(want, when string) {
				r.t.Helper()
				for name, session := range open {
					if result := session.Ask(); result.Endpoint != want {
						r.t.Errorf("the flow from %s, %s: %s, want %s", name, when, result, want)
					}
				}
			}
			reach("pod2:8080", "at the beginning")
			r.change("", endpointsOf("pod2", "pod3"))
			reach("pod2:8080", "when another endpoint has come")
			r.change("", `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}]
endpoints:
- {addresses: [$pod2], nodeName: node, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [$pod3], nodeName: node}
`)
			reach("pod2:8080", "while its endpoint terminates")
			r.change("", endpointsOf("pod3"))
			reach("pod3:8080", "when its endpoint is gone")
			r.change("", endpointsOf())
			for name, session := range open {
				if result := session.Ask(); result.Kind != lab.Refused {
					r.t.Errorf("the flow from %s, when no endpoint is left: %s, want refused", name, result)
				}
			}
			r.change("", endpointsOf("pod2"))
			reach("pod2:8080", "when there is an endpoint again")
		},
	},
	{
		name:    "no new connection fails during a restart",
		objects: allKinds + endpointsOf("pod2", "pod3"),
		check: func(r *run) {
			stop, failed := make(chan struct{}), make(chan string, 1)
			probe, err := r.parseProbe("outside", "tcp", "lb1:80")
			r.must(err)
			go func() {
				defer close(failed)
				for {
					select {
					case <-stop:
						return
					default:
					}
					if result := probe.Send(r.ctx); result.Kind != lab.Reached {
						failed <- result.String()
						return
					}
				}
			}()
			for range 5 {
				r.must(r.subject.Restart(r.ctx))
				time.Sleep(20 * time.Millisecond)
			}
			close(stop)
			if result, ok := <-failed; ok {
				r.t.Errorf("a connection met: %s", result)
			}
			if err := r.subject.Settled(r.ctx); err != nil {
				r.t.Error(err)
			}
		},
	},
	{
		name:    "new connections are spread evenly",
		objects: allKinds + endpointsOf("pod1", "pod2", "pod3", "far1", "far2"),
		check: func(r *run) {
			for _, to := range []string{"vip1:80", "node:30080"} {
				r.spread("outside", "tcp", to, 300)
				r.spread("node", "udp", to, 300)
			}
		},
	},
}

// open opens a session.
func (r *run) open(from, protocol, to string) *lab.Session {
	r.t.Helper()
	probe, err := r.parseProbe(from, protocol, to)
	r.must(err)
	session, result := probe.Open(r.ctx)
	if session == nil {
		r.t.Fatalf("open a session from %s to %s %s: %s", from, protocol, to, result)
	}
	return session
}

// spread makes n connections to a Service with five endpoints and checks that each
// gets its part of them, by Pearson's chi-square test.
func (r *run) spread(from, protocol, to string, n int) {
	r.t.Helper()
	probe, err := r.parseProbe(from, protocol, to)
	r.must(err)
	hits := map[string]int{}
	for range n {
		hits[probe.Send(r.ctx).Endpoint]++
	}
	const endpoints = 5
	sum := 0.0
	for _, hit := range hits {
		d := float64(hit) - float64(n)/endpoints
		sum += d * d / (float64(n) / endpoints)
	}
	// With four degrees of freedom an even spread exceeds this once in a million times.
	const bound = 33.4
	if len(hits) != endpoints || sum > bound {
		r.t.Errorf("%d connections from %s to %s are spread as %v: chi-square is %.1f", n, from, to, hits, sum)
	}
}
