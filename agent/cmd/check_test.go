package cmd

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/agent/check"
	"sluice/test/lab"
)

// checkIn runs the command on a namespace and returns the report by item.
func checkIn(t *testing.T, n *lab.Namespace, args ...string) (code int, items map[string]check.Item) {
	t.Helper()
	args = append([]string{"check", "-o", "json", "--manifests", t.TempDir(), "--data-dir", t.TempDir()}, args...)
	code, out, errs := sluiceIn(t, n, args...)
	var r check.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || errs != "" {
		t.Fatalf("%v, %q, %s", err, errs, out)
	}
	items = map[string]check.Item{}
	failures := 0
	for _, item := range r.Items {
		items[item.Name] = item
		if item.Level == check.Fail {
			failures++
		}
		if item.Group == "" || (item.Level == check.OK) != (item.Remedy == "") {
			t.Errorf("%+v", item)
		}
	}
	if code != failures || r.Failures != failures {
		t.Errorf("exit code %d, %d failures in the report, %d of its items", code, r.Failures, failures)
	}
	return code, items
}

// A namespace in which all is well, and one thing after the other that is not.
func TestCheck(t *testing.T) {
	n := lab.NewTestNamespace(t)
	n.Must(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	code, items := checkIn(t, n)
	if code != 0 {
		for _, item := range items {
			if item.Level == check.Fail {
				t.Errorf("%+v", item)
			}
		}
	}
	for _, name := range []string{"proxy mode", "ip_forward", "kube-proxy's rules", "FORWARD of iptables-nft (IPv4)", "manifests", "healthz port", "cache directory", "nftables: reject"} {
		if items[name].Level != check.OK {
			t.Errorf("%s: %+v", name, items[name])
		}
	}

	n.Must(t, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv4.conf.all.rp_filter=1")
	n.Must(t, "ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
	n.Must(t, "iptables-nft", "-P", "FORWARD", "DROP")
	n.Must(t, "iptables-nft", "-N", "DOCKER-USER")
	n.Must(t, "iptables-nft", "-A", "FORWARD", "-j", "DOCKER-USER")
	n.Must(t, "iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES")
	n.Must(t, "iptables-legacy", "-t", "nat", "-A", "OUTPUT", "-j", "KUBE-SERVICES")
	n.Must(t, "nft", "add table ip6 kube-proxy; add table inet fw; add chain inet fw drop-all { type filter hook forward priority 0; policy drop; }; add table inet firewalld; "+
		"add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; }")
	l, err := n.Listen(t.Context(), "tcp", "127.0.0.1:10249")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, items = checkIn(t, n, "--cluster-cidr", "10.9.0.0/16")
	for name, want := range map[string]check.Item{
		"ip_forward":                      {Level: check.Warn, Detail: "off", Remedy: "net.ipv4.ip_forward=1"},
		"rp_filter":                       {Level: check.Warn, Detail: "d0, d1", Remedy: "rp_filter=2"},
		"FORWARD of iptables-nft (IPv4)":  {Level: check.Fail, Detail: "Docker", Remedy: "DOCKER-USER -s 10.9.0.0/16"},
		"kube-proxy's rules":              {Level: check.Fail, Detail: "nftables table kube-proxy (IPv6), 1 chain in table nat of iptables-legacy (IPv4)", Remedy: "cleanup --kube-proxy"},
		"iptables variants":               {Level: check.Warn, Detail: "both are in use", Remedy: "update-alternatives"},
		"nftables chain inet fw drop-all": {Level: check.Warn, Detail: "drops", Remedy: "nft insert rule inet fw drop-all ip daddr 10.9.0.0/16 accept"},
		"firewalld":                       {Level: check.Warn, Detail: "rejects", Remedy: "--add-source=10.9.0.0/16"},
		"metrics port":                    {Level: check.Fail, Detail: "10249 is in use by cmd.test", Remedy: "--metrics-bind-address"},
	} {
		got := items[name]
		if got.Level != want.Level || !strings.Contains(got.Detail, want.Detail) || !strings.Contains(got.Remedy, want.Remedy) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

// The remedies that are commands work: after them the item is ok.
func TestCheckRemedies(t *testing.T) {
	n := lab.NewTestNamespace(t)
	n.Must(t, "iptables-nft", "-P", "FORWARD", "DROP")
	n.Must(t, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
	n.Must(t, "ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
	names := []string{"FORWARD of iptables-nft (IPv4)", "rp_filter"}
	_, items := checkIn(t, n, "--cluster-cidr", "10.9.0.0/16,fd09::/48")
	for _, name := range names {
		if items[name].Level == check.OK {
			t.Fatalf("%+v", items[name])
		}
		command, _, _ := strings.Cut(items[name].Remedy, " (")
		n.Must(t, "sh", "-c", command)
	}
	_, items = checkIn(t, n, "--cluster-cidr", "10.9.0.0/16,fd09::/48")
	for _, name := range names {
		if items[name].Level != check.OK {
			t.Errorf("after the remedy: %+v", items[name])
		}
	}
}

// An API server that cannot be reached is found out within the time there is.
func TestCheckAPIServer(t *testing.T) {
	n := lab.NewTestNamespace(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	var port int
	if l, err := n.Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	} else {
		port = l.Addr().(*net.TCPAddr).Port
		l.Close()
	}
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]}`, port)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, items := checkIn(t, n, "--manifests", "", "--kubeconfig", kubeconfig)
	if item := items["API server"]; item.Level != check.Fail || !strings.Contains(item.Detail, "cannot be reached") {
		t.Errorf("%+v", item)
	}
	if item := items["kubeconfig"]; item.Level != check.OK || item.Detail != kubeconfig {
		t.Errorf("%+v", item)
	}
}

// Text for people has no colour where no terminal is, and says the same.
func TestCheckText(t *testing.T) {
	n := lab.NewTestNamespace(t)
	code, out, errs := sluiceIn(t, n, "check", "--manifests", filepath.Join(t.TempDir(), "none"), "--data-dir", t.TempDir())
	if code != 1 || errs != "" || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d, %q, %s", code, errs, out)
	}
	for _, line := range []string{"Kernel:", "- nftables: reject: ok (IPv4, IPv6)", "- manifests: fail (", "    remedy: ", "STATUS: 1 failure, "} {
		if !strings.Contains(out, "\n"+line) && !strings.HasPrefix(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// What has no effect is a warning, and what the agent would refuse is refused.
func TestCheckConfiguration(t *testing.T) {
	n := lab.NewTestNamespace(t)
	t.Setenv("SLUICE_ZLUSTER_CIDR", "10.42.0.0/16")
	_, items := checkIn(t, n, "--socket", "/run/x.sock")
	if item := items["options"]; item.Level != check.Warn || !strings.Contains(item.Detail, "SLUICE_ZLUSTER_CIDR") || !strings.Contains(item.Remedy, "SLUICE_CLUSTER_CIDR") {
		t.Errorf("%+v", item)
	}
	if code, _, errs := sluiceIn(t, n, "check", "--data-dir", "d"); code != exitUsage || !strings.Contains(errs, "--data-dir") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

// Another user gets warnings of one line, and is told how little was looked at.
func TestCheckUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	n := lab.NewTestNamespace(t)
	n.Must(t, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	dir := t.TempDir()
	program := filepath.Join(dir, "sluice")
	if out, err := exec.Command("go", "build", "-o", program, "sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := n.Run(t.Context(), "", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "check", "--manifests", dir, "--data-dir", "/var/lib/sluice-none")
	if err != nil || strings.Contains(text, ": fail") || !strings.Contains(text, "could not be looked at: run sluice check as root\n") || !strings.Contains(text, "- ip_forward: warn (it is off)") {
		t.Errorf("%v\n%s", err, text)
	}
	for line := range strings.Lines(text) {
		if len(line) > 1 && !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "    remedy: ") && !strings.HasSuffix(line, ":\n") && !strings.HasPrefix(line, "STATUS: ") {
			t.Errorf("a line of its own: %q", line)
		}
	}
}
