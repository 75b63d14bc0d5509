package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// sluiceIn runs a command inside a network namespace.
func sluiceIn(t *testing.T, n *lab.Namespace, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	err := n.Do(func() error {
		code, stdout, stderr = sluice(t, args...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return code, stdout, stderr
}

func TestCleanupKubeProxy(t *testing.T) {
	n := lab.NewTestNamespace(t)
	n.Must(t, "nft", "add table ip kube-proxy; add table ip6 kube-proxy; add table ip mine; add table ip sluice")
	n.Must(t, "iptables", "-t", "nat", "-N", "KUBE-SVC-A")
	n.Must(t, "iptables", "-t", "nat", "-N", "KUBE-MARK-MASQ")
	n.Must(t, "iptables", "-t", "nat", "-N", "CNI-X")
	n.Must(t, "iptables", "-t", "nat", "-A", "CNI-X", "-j", "KUBE-MARK-MASQ")
	socket := filepath.Join(t.TempDir(), "s")

	code, out, errs := sluiceIn(t, n, "cleanup", "--kube-proxy", "--socket", socket)
	if code != 0 || errs != "" || strings.Count(out, "Removed nftables table kube-proxy") != 2 || !strings.Contains(out, "Removed 1 chain in table nat") || !strings.Contains(out, "Kept KUBE-MARK-MASQ") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	tables := n.Must(t, "nft", "list", "tables")
	if strings.Contains(tables, "kube-proxy") || !strings.Contains(tables, "mine") || !strings.Contains(tables, "sluice") {
		t.Errorf("tables are left: %s", tables)
	}
	if code, out, errs := sluiceIn(t, n, "cleanup", "--socket", socket); code != 0 || errs != "" || out != "sluice's rules are removed.\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if tables := n.Must(t, "nft", "list", "tables"); strings.Contains(tables, "sluice") || !strings.Contains(tables, "mine") {
		t.Errorf("tables are left: %s", tables)
	}
}

func TestCleanupKubeProxyOfNothing(t *testing.T) {
	code, out, errs := sluiceIn(t, lab.NewTestNamespace(t), "cleanup", "--kube-proxy")
	if code != 0 || errs != "" || out != "Nothing to remove: kube-proxy has no rules here.\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// Where there is nothing, that is said, and nothing is left behind.
func TestCleanupOfNothing(t *testing.T) {
	n, dir := lab.NewTestNamespace(t), filepath.Join(t.TempDir(), "run")
	code, out, errs := sluiceIn(t, n, "cleanup", "--socket", filepath.Join(dir, "s"))
	if code != 0 || errs != "" || out != "Nothing to remove: sluice has no rules here.\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the socket is left (%v)", err)
	}
	if code, _, _ := sluiceIn(t, n, "cleanup", "--socket", filepath.Join(t.TempDir(), "s")); code != 0 {
		t.Errorf("exit code %d in a directory that is there", code)
	}
}
