package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/rig"
)

// awaitCode asks until the answer has the code.
func awaitCode(t *testing.T, from *lab.Host, url string, want int) (body string, header http.Header) {
	t.Helper()
	for deadline := time.Now().Add(rig.Soon); ; time.Sleep(5 * time.Millisecond) {
		code, body, header := rig.Get(t, from, url)
		if code == want {
			return body, header
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %d, want %d: %s", url, code, want, body)
		}
	}
}

// TestHealth asks as load balancers and probes do.
func TestHealth(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const spec = `  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
` + "  ports: [{name: t, port: 80, nodePort: 30080}]\n"
	c.write("web.yaml", service("web", "vip1", spec), endpoints("web", "pod1", "pod2", "far1"))
	c.Run()
	healthz := fmt.Sprintf("http://%v:10256/healthz", c.Names["node"])
	livez := fmt.Sprintf("http://%v:10256/livez", c.Names["node"])
	body, _ := awaitCode(t, c.Lab.Outside, healthz, 200)
	var answer struct {
		NodeEligible, Healthy bool
		LastUpdated           time.Time
		Status                map[string]struct{ Healthy bool }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || !answer.NodeEligible || !answer.Healthy || time.Since(answer.LastUpdated) > 10*time.Second ||
		!answer.Status["IPv4"].Healthy || !answer.Status["IPv6"].Healthy {
		t.Errorf("%s: %s: %v", healthz, body, err)
	}
	awaitCode(t, c.Lab.Outside, livez, 200)
	awaitCode(t, c.Lab.Outside, fmt.Sprintf("http://[%v]:10256/healthz", c.Names["nodev6"]), 200)

	for _, f := range proxy.Families {
		url := fmt.Sprintf("http://%s/any/path", net.JoinHostPort(c.Names["node"+rig.Suffix[f]].String(), "32000"))
		body, header := awaitCode(t, c.Lab.Outside, url, 200)
		if header.Get("X-Load-Balancing-Endpoint-Weight") != "2" || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", url, header)
		}
		var answer struct {
			Service             struct{ Namespace, Name string }
			LocalEndpoints      int
			ServiceProxyHealthy bool
		}
		err := json.Unmarshal([]byte(body), &answer)
		if err != nil || answer.Service.Namespace != "default" || answer.Service.Name != "web" || answer.LocalEndpoints != 2 || !answer.ServiceProxyHealthy {
			t.Errorf("%s: %s: %v", url, body, err)
		}
	}
	check := fmt.Sprintf("http://%v:32000/", c.Names["node"])
	c.write("web.yaml", service("web", "vip1", spec), endpoints("web", "far1"))
	if _, header := awaitCode(t, c.Lab.Outside, check, 503); header.Get("X-Load-Balancing-Endpoint-Weight") != "0" {
		t.Errorf("%s without a local endpoint: %v", check, header)
	}
	c.write("web.yaml", service("web", "vip1", spec), endpoints("web", "pod3"))
	awaitCode(t, c.Lab.Outside, check, 200)

	// The cluster autoscaler is about to remove the node.
	c.write("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: node}\nspec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}\n")
	awaitCode(t, c.Lab.Outside, healthz, 503)
	awaitCode(t, c.Lab.Outside, livez, 200)
	c.Remove("node.yaml")
	awaitCode(t, c.Lab.Outside, healthz, 200)

	c.Remove("web.yaml")
	awaitCode(t, c.Lab.Outside, check, 0) // nobody listens
	c.Stop()
	awaitCode(t, c.Lab.Outside, healthz, 0)
}

// TestLocalhostNodePorts connects to NodePorts at the loopback address.
func TestLocalhostNodePorts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--nodeport-addresses", "primary,localhost")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.Run()
	c.Reach(rig.Soon, "node tcp loopback:30080", "pod2:8080", "far1:8080")
	c.Reach(0, "node tcp node:30080", "pod2:8080", "far1:8080")
	c.Reach(0, "outside tcp node:30080", "pod2:8080", "far1:8080")
	c.Reach(0, "pod1 tcp loopback:30080", "refused") // is the pod's own

	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod3"))
	c.Reach(rig.Soon, "node tcp loopback:30080", "pod3:8080")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web"))
	c.Reach(rig.Soon, "node tcp loopback:30080", "refused")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod3"))
	c.Reach(rig.Soon, "node tcp loopback:30080", "pod3:8080")
	c.Remove("web.yaml")
	c.Reach(rig.Soon, "node tcp loopback:30080", "refused")
}

// TestClaims has two Services claim the same NodePort and VIP: the older one has them until it goes.
func TestClaims(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const spec = `  type: LoadBalancer
  ports: [{name: t, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: $lb1}, {ip: $lb1v6}]}}
`
	older := service("older", "vip1", spec)
	younger := "# created later\n" + service("younger", "vip2", spec)
	younger = strings.Replace(younger, "2026", "2027", 1)
	c.write("1.yaml", younger, endpoints("younger", "pod3")) // is read first
	c.write("2.yaml", older, endpoints("older", "pod2"))
	c.Run()
	for _, to := range []string{"lb1:80", "node:30080"} {
		c.Reach(0, "outside tcp "+to, "pod2:8080")
	}
	c.Reach(0, "pod1 tcp vip2:80", "pod3:8080") // what nobody else claims it has

	c.write("1.yaml", younger, endpoints("younger", "pod1"))
	c.Reach(rig.Soon, "pod1 tcp vip2:80", "pod1:8080")
	c.Reach(0, "outside tcp lb1:80", "pod2:8080")
	for _, address := range []string{c.Names["lb1"].String() + ":80", c.Names["node"].String() + ":30080"} {
		if n := c.Logged("claim", address, "default/younger", "default/older"); n != 1 {
			t.Errorf("the log tells %d times of the claims to %s", n, address)
		}
	}
	s, err := c.Status()
	if err != nil || len(s.Conflicts) != 4 || !rig.ContainsAll(s.Conflicts[0], []string{"younger", "older"}) {
		t.Errorf("the conflicts in the status are %q, %v", s.Conflicts, err)
	}

	c.Remove("2.yaml")
	c.Reach(rig.Soon, "outside tcp lb1:80", "pod1:8080")
	c.Reach(0, "outside tcp node:30080", "pod1:8080")
	c.write("2.yaml", older, endpoints("older", "pod2"))
	c.Reach(rig.Soon, "outside tcp lb1:80", "pod2:8080")
	c.Stop()
	c.Run() // the same after a restart
	c.Reach(0, "outside tcp node:30080", "pod2:8080")
}
