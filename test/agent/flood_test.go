package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/rig"
)

// silence opens connections from a host that begin a question and do not end it, and holds them until the test ends.
func silence(t *testing.T, from *lab.Host, n int, network, address string) {
	t.Helper()
	for range n {
		var conn net.Conn
		err := from.Do(func() (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		if err != nil {
			t.Fatalf("connect to %s: %v", address, err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n") // it may be closed again already
	}
}

// TestDescriptors has objects and clients ask for far more file descriptors than the agent may have. Each write takes
// new ones here, since programs are run for it.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	const limit, checks = 256, 200
	c := newCluster(t, "--proxy-mode", "iptables", "--nodeport-addresses", "primary,localhost")
	c.Wrapper = []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", limit, limit), "--"}
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	var junk strings.Builder
	vip, vip6 := c.Names["vip1"], c.Names["vip1v6"]
	for i := range checks {
		for range 8 {
			vip, vip6 = vip.Next(), vip6.Next()
		}
		name := fmt.Sprint("junk", i)
		fmt.Fprintf(&junk, `apiVersion: v1
kind: Service
metadata: {name: %s}
spec:
  clusterIP: %v
  clusterIPs: [%[2]v, %v]
  ipFamilyPolicy: RequireDualStack
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: %d
  ports: [{name: t, port: 80, nodePort: %d}]
---
`, name, vip, vip6, 31000+i, 30100+i)
		fmt.Fprintf(&junk, "%s---\n", endpoints(name, "pod1"))
	}
	c.write("junk.yaml", junk.String())
	c.Run()
	node := c.Names["node"].String()
	silence(t, c.Lab.Outside, 200, "tcp", net.JoinHostPort(node, "10256"))
	silence(t, c.Lab.Outside, 200, "tcp", net.JoinHostPort(node, "31000"))
	silence(t, c.Lab.Node, 200, "tcp", "127.0.0.1:10249")
	silence(t, c.Lab.Node, 200, "unix", c.Socket())

	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod3:8080")
	if code, body, _ := rig.Get(t, c.Lab.Outside, fmt.Sprintf("http://%s:10256/healthz", node)); code != 200 {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body, _ := rig.Get(t, c.Lab.Outside, fmt.Sprintf("http://%s:31000/", node)); code != 200 {
		t.Errorf("a healthCheckNodePort: %d %s", code, body)
	}
	s, err := c.Status()
	if err != nil || !s.Healthy {
		t.Fatalf("%+v, %v", s.Reasons, err)
	}
	if !strings.Contains(strings.Join(s.Conflicts, "\n"), "healthCheckNodePort ") {
		t.Error("no word of the healthCheckNodePorts that are not served")
	}
	c.Remove("junk.yaml")
	c.Eventually(rig.Patience, "nothing that is not served", func() bool {
		s, err := c.Status()
		return err == nil && len(s.Conflicts) == 0
	})
	c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip1:80", "pod3:8080")
}

// TestListeners compares what the agent listens on with docs/security.md.
func TestListeners(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	var got []string
	c.Eventually(rig.Patience, "three listeners", func() bool {
		got = nil
		for line := range strings.Lines(c.OnNode("ss", "-Hlntuxwp")) {
			if fields := strings.Fields(line); strings.Contains(line, fmt.Sprintf("pid=%d,", c.Cmd.Process.Pid)) {
				got = append(got, fields[0]+" "+fields[4])
			}
		}
		return len(got) >= 3
	})
	slices.Sort(got)
	if want := []string{"tcp *:10256", "tcp 127.0.0.1:10249", "u_str " + c.Socket()}; !slices.Equal(got, want) {
		t.Errorf("it listens on %q, want %q", got, want)
	}
	if code, body, _ := rig.Get(t, c.Lab.Node, "http://127.0.0.1:10249/debug/pprof/"); code != 404 {
		t.Errorf("profiles that nobody asked for: %d %s", code, body)
	}
}
