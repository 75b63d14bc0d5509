package dataplane

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"sluice/test/lab"
)

// sticky is a Service with session affinity. Its endpoints are to be four of
// those on node, which clients of every kind can reach with their source address kept.
func sticky(timeout int, more string) string {
	return fmt.Sprintf(`
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}
  clusterIP: $vip1
  externalIPs: [$ext1]
  ports:
  - {port: 80, nodePort: 30080}
  - {name: u, port: 80, nodePort: 30080, protocol: UDP}
  - {name: s, port: 80, nodePort: 30080, protocol: SCTP}
%s
status: {loadBalancer: {ingress: [{ip: $lb1}]}}
---
`, timeout, more)
}

const stickyEndpoints = `
kind: EndpointSlice
metadata: {name: web-1}
ports: [{port: 8080}, {name: u, port: 8080, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints:
- {addresses: [$pod1], nodeName: node}
- {addresses: [$pod2], nodeName: node}
- {addresses: [$pod3], nodeName: node}
- {addresses: [$node], nodeName: node}
`

// clients have different addresses each. That they all choose the same endpoints
// twice by chance, out of four, happens once in 65,536 times.
var clients = []string{"pod1", "pod2", "pod3", "far1", "far2", "node", "outside", "outside@outside2"}

// choices makes one connection from every client and returns who reached which endpoint.
func (r *run) choices(protocol, to string) map[string]string {
	r.t.Helper()
	probes := make([]lab.Probe, len(clients))
	for i, client := range clients {
		var err error
		probes[i], err = r.parseProbe(client, protocol, to)
		r.must(err)
	}
	chosen := map[string]string{}
	for i, result := range lab.SendAll(r.ctx, probes) {
		if result.Kind != lab.Reached {
			r.t.Fatalf("%s %s %s: %s", clients[i], protocol, to, result)
		}
		chosen[clients[i]] = result.Endpoint
	}
	return chosen
}

// keeps checks that every client has the same endpoint as before.
func (r *run) keeps(before map[string]string, protocol, to, when string) {
	r.t.Helper()
	for client, now := range r.choices(protocol, to) {
		if now != before[client] {
			r.t.Errorf("%s %s %s, %s: got %s, and had %s", client, protocol, to, when, now, before[client])
		}
	}
}

var affinityCases = []testCase{
	{
		name:    "affinity: one endpoint for each client, whichever address it uses",
		objects: sticky(60, "") + stickyEndpoints,
		check: func(r *run) {
			for _, protocol := range []string{"tcp", "udp", "sctp"} {
				first := r.choices(protocol, "vip1:80")
				for range 3 {
					for _, to := range []string{"vip1:80", "node:30080", "lb1:80", "ext1:80"} {
						r.keeps(first, protocol, to, "for the same client")
					}
				}
			}
			// The other way round: what is learned at a NodePort holds for the ClusterIP.
			r.change("EndpointSlice/web-1", "")
			r.change("", stickyEndpoints)
			first := r.choices("tcp", "node:30080")
			r.keeps(first, "tcp", "vip1:80", "after the NodePort")
			r.keeps(first, "tcp", "lb1:80", "after the NodePort")
		},
	},
	{
		name:    "affinity expires",
		objects: sticky(1, "") + stickyEndpoints,
		check: func(r *run) {
			first := r.choices("tcp", "vip1:80")
			r.keeps(first, "tcp", "vip1:80", "at once")
			time.Sleep(1300 * time.Millisecond)
			second := r.choices("tcp", "vip1:80")
			if maps.Equal(first, second) {
				r.t.Errorf("after the timeout every client has the endpoint of before: %v", second)
			}
			r.keeps(second, "tcp", "vip1:80", "at once")
		},
	},
	{
		name:    "each connection renews affinity",
		objects: sticky(3, "") + stickyEndpoints,
		check: func(r *run) {
			first := r.choices("udp", "vip1:80")
			for range 2 {
				time.Sleep(1700 * time.Millisecond)
				r.keeps(first, "udp", "vip1:80", "within the timeout of the last connection")
			}
		},
	},
	{
		name:    "affinity to an endpoint that is gone",
		objects: sticky(60, "") + stickyEndpoints,
		check: func(r *run) {
			first := r.choices("tcp", "vip1:80")
			gone := first["outside"]
			host, _, _ := strings.Cut(gone, ":")
			without := func(change string) string {
				return strings.Replace(stickyEndpoints, "[$"+host+"], nodeName: node", change, 1)
			}
			moved := func(to string) map[string]string {
				now := r.choices("tcp", to)
				for client, endpoint := range now {
					switch {
					case endpoint == gone:
						r.t.Errorf("%s reaches %s, which is gone", client, endpoint)
					case first[client] != gone && first[client] != endpoint:
						r.t.Errorf("%s has %s, although %s is still there", client, endpoint, first[client])
					}
				}
				return now
			}
			r.change("", without("[$"+host+"], nodeName: node, conditions: {ready: false, serving: true, terminating: true}"))
			second := moved("vip1:80")
			r.keeps(second, "tcp", "node:30080", "after the endpoint went")
			r.change("", stickyEndpoints)
			r.keeps(second, "tcp", "vip1:80", "when the endpoint is back")
			r.change("", without("[$far1], nodeName: node2"))
			moved("lb1:80")
		},
	},
	{
		name:    "affinity with externalTrafficPolicy Local",
		objects: sticky(60, "  externalTrafficPolicy: Local") + stickyEndpoints,
		check: func(r *run) {
			atNodePort := r.choices("tcp", "node:30080")
			atClusterIP := r.choices("tcp", "vip1:80")
			for range 3 {
				r.keeps(atNodePort, "tcp", "node:30080", "for the same client")
				r.keeps(atNodePort, "tcp", "lb1:80", "for the same client")
				r.keeps(atClusterIP, "tcp", "vip1:80", "for the same client")
			}
			// Clients from outside are to stay with this node's endpoints, where others come.
			r.change("", stickyEndpoints+"- {addresses: [$far1], nodeName: node2}\n")
			r.keeps(atNodePort, "tcp", "node:30080", "when an endpoint elsewhere has come")
			r.keeps(atClusterIP, "tcp", "vip1:80", "when an endpoint elsewhere has come")
		},
	},
	{
		name:    "affinity survives a restart",
		objects: sticky(60, "") + stickyEndpoints,
		check: func(r *run) {
			first := r.choices("tcp", "vip1:80")
			r.must(r.subject.Restart(r.ctx))
			r.keeps(first, "tcp", "vip1:80", "after a restart")
			r.change("", stickyEndpoints+"- {addresses: [$far1], nodeName: node2}\n")
			r.keeps(first, "tcp", "lb1:80", "when another endpoint has come")
			r.must(r.subject.Restart(r.ctx))
			r.keeps(first, "tcp", "node:30080", "after another restart")
		},
	},
	{
		name:    "affinity is switched off and on",
		objects: sticky(60, "") + stickyEndpoints,
		check: func(r *run) {
			first := r.choices("tcp", "vip1:80")
			r.keeps(first, "tcp", "vip1:80", "with affinity")
			r.change("", `
kind: Service
metadata: {name: web}
spec: {type: NodePort, clusterIP: $vip1, ports: [{port: 80, nodePort: 30080}]}
`)
			r.probe(`
outside tcp vip1:80    => pod1:8080 pod2:8080 pod3:8080 node:8080 from any
pod2    tcp node:30080 => pod1:8080 pod2:8080 pod3:8080 node:8080 from any
`)
			r.change("", sticky(60, ""))
			second := r.choices("tcp", "vip1:80")
			r.keeps(second, "tcp", "node:30080", "with affinity again")
			// Another timeout is no reason to move.
			r.change("", sticky(120, ""))
			r.keeps(second, "tcp", "vip1:80", "with another timeout")
		},
	},
}
