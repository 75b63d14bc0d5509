package agent

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/rig"
)

// TestOffline asks without an agent what it was asked with one.
func TestOffline(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.Args = append(c.Args, "--proxy-mode", mode)
			c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
			c.write("kept.yaml", service("kept", "vip3", sticky), endpoints("kept", "pod2", "far1"))
			c.Run()
			answer := func(wantCode int, wantErrors string, args ...string) string {
				t.Helper()
				out, errs, code := c.Command(args...)
				if code != wantCode || !strings.Contains(errs, wantErrors) || (wantErrors == "") != (errs == "") {
					t.Errorf("%v: code %d, want %d: %s%s", args, code, wantCode, out, errs)
				}
				return out
			}
			questions := [][]string{{"explain", "web"}, {"explain", "kept", "--live"}, {"explain", "web", "--from", c.Expand("$pod1"), "-o", "json"}, {"diff"}}
			var online []string
			for _, q := range questions {
				online = append(online, answer(0, "", q...))
			}
			c.Stop()
			if err := os.WriteFile(c.Config(), []byte("manifests: "+c.Manifests+"\nhostname-override: node\nproxy-mode: "+mode+
				"\ncluster-cidr: "+lab.ClusterCIDRs[proxy.IPv4].String()+","+lab.ClusterCIDRs[proxy.IPv6].String()+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i, q := range questions {
				if got := answer(0, "no agent is running: answered from manifests", q...); got != online[i] {
					t.Errorf("%v without an agent (-online +offline):\n%s", q, cmp.Diff(online[i], got))
				}
			}
			// What another program does now, nobody mends.
			if mode == "nftables" {
				c.OnNode("nft", "flush chain ip sluice nat-prerouting")
			} else {
				c.OnNode("iptables", "-t", "nat", "-F", "SLUICE-SERVICES")
			}
			if out := answer(1, "no agent", "diff"); !strings.Contains(out, "  + ") || strings.Contains(out, "wait") {
				t.Error(out)
			}
			if out := answer(1, "no agent", "explain", "web:t", "--live", "--from", c.Expand("$pod1")); !strings.Contains(out, "NOT SO IN THE KERNEL: the packet is ") {
				t.Error(out)
			}
		})
	}
}

// TestExplainManifests explains a directory of manifests without rights, agent and cluster, for a node that is another machine.
func TestExplainManifests(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sluice-test-") // TempDir's are for their owner alone
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const objects = `apiVersion: v1
kind: Node
metadata: {name: far, labels: {topology.kubernetes.io/zone: b}}
spec: {podCIDR: 10.244.7.0/24}
status: {addresses: [{type: InternalIP, address: 198.51.100.9}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, clusterIP: 10.96.0.20, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.7.2], nodeName: far}]
---
apiVersion: v1
kind: Service
metadata: {name: bad}
spec: {clusterIP: 10.96.0.300, ports: [{port: 80}]}
`
	program, err := os.ReadFile(rig.Binary)
	for _, err := range []error{err,
		os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "manifests"), 0o755), os.WriteFile(filepath.Join(dir, "config.yaml"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "manifests", "objects.yaml"), []byte(objects), 0o644), os.WriteFile(filepath.Join(dir, "sluice"), program, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	explain := func(node string) (out []byte, errs string, err error) {
		cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", filepath.Join(dir, "sluice"), "explain", "web", "-o", "json",
			"--manifests", filepath.Join(dir, "manifests"), "--hostname-override", node, "--config", filepath.Join(dir, "config.yaml"))
		var said strings.Builder
		cmd.Stderr = &said
		out, err = cmd.Output()
		return out, said.String(), err
	}
	out, errs, err := explain("far")
	var l status.List[status.Path]
	if err != nil || json.Unmarshal(out, &l) != nil || len(l.Items) != 2 {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if to := l.Items[1].To[0]; to != "198.51.100.9:30080/TCP" || len(l.Items[1].Endpoints) != 1 || l.Items[1].BlockError != "" {
		t.Errorf("%+v", l.Items[1])
	}
	for _, want := range []string{"answered from manifests", "objects.yaml", "10.96.0.300"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in %s", want, errs)
		}
	}
	const unknown = "there is no Node farther in it"
	if _, other, err := explain("farther"); err != nil || !strings.Contains(other, unknown) || strings.Contains(errs, "there is no Node") {
		t.Errorf("with a Node of the name: %sof a name that no Node has, %v: %s", errs, err, other)
	}
}

// TestDryRun shows what an agent would do, before there is one, beside one, and behind one.
func TestDryRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	before := c.OnNode("sh", "-c", "nft list ruleset; sysctl -a -r '^net' 2>/dev/null | grep -v nf_conntrack_count; find "+c.Dir)
	dry := func() (out, errs string, code int) {
		t.Helper()
		return c.Command(append([]string{"agent", "--dry-run", "--manifests", c.Manifests, "--hostname-override", "node"}, c.Args...)...)
	}
	out, errs, code := dry()
	for _, want := range []string{"nftables: ", "node (there is no Node object of that name), at ", "1 service, 4 frontends, 2 distinct endpoints", "net.netfilter.nf_conntrack_tcp_timeout_close_wait=3600 (was 60)", "table ip sluice\n", "table ip6 sluice\n", "2 differences"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s%s", want, out, errs)
		}
	}
	after := c.OnNode("sh", "-c", "nft list ruleset; sysctl -a -r '^net' 2>/dev/null | grep -v nf_conntrack_count; find "+c.Dir)
	if code != 1 || errs != "" || before != after {
		t.Errorf("code %d, %s; what it changed: %s", code, errs, cmp.Diff(before, after))
	}
	c.Run()
	if out, errs, _ := dry(); !strings.Contains(out, "the kernel has all that it should have, and no more\n") {
		t.Errorf("beside the agent: %s%s", out, errs)
	}
	c.Stop()
	c.OnNode("nft", "delete element ip sluice service-ips { "+c.Expand("$vip1")+" . tcp . 80 }")
	if out, errs, code := dry(); code != 1 || !strings.Contains(out, "1 difference") || !strings.Contains(out, "element ip sluice service-ips\n  + "+c.Expand("$vip1")) {
		t.Errorf("after a fault: code %d, %s%s", code, out, errs)
	}
}

// TestOfflineBroken: what a manifest described before it was broken stays, for the agent and for what is asked without one.
func TestOfflineBroken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", nodePorts)
	c.write("web.yaml", web, endpoints("web", "pod2", "far1"))
	c.Run()
	c.Stop()
	if err := os.WriteFile(c.Config(), []byte("data-dir: "+c.Dir+"\nmanifests: "+c.Manifests+"\nhostname-override: node\n"+
		"cluster-cidr: "+lab.ClusterCIDRs[proxy.IPv4].String()+","+lab.ClusterCIDRs[proxy.IPv6].String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.write("web.yaml", strings.Replace(web, "port: 80,", "port: 99999,", 1), endpoints("web", "pod2", "far1"))
	same := func(what string) {
		t.Helper()
		for _, args := range [][]string{{"diff"}, append([]string{"agent", "--dry-run"}, c.Args...)} {
			if out, errs, _ := c.Command(args...); !strings.Contains(out, "the kernel has all that it should have") {
				t.Errorf("%s: %v: %s%s", what, args, out, errs)
			}
		}
		if out, errs, code := c.Command("explain", "web", "--live"); code != 0 {
			t.Errorf("%s: explain: code %d, %s%s", what, code, out, errs)
		}
	}
	same("a broken document")
	if err := os.Rename(c.Manifests, c.Manifests+"-away"); err != nil {
		t.Fatal(err)
	}
	same("no directory")
}
