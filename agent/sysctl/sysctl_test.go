package sysctl

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApply(t *testing.T) {
	files := map[string]string{
		"net/netfilter/nf_conntrack_max":                     "8192\n",
		"net/netfilter/nf_conntrack_tcp_timeout_established": "432000\n",
		"net/netfilter/nf_conntrack_tcp_timeout_close_wait":  "7200\n",
		"net/ipv4/ip_forward":                                "0\n",
		"net/ipv6/conf/all/forwarding":                       "0\n",
		"net/ipv6/conf/all/accept_ra":                        "1\n",
		"net/ipv6/conf/eth0/accept_ra":                       "1\n",
		"net/ipv6/conf/wlan0/accept_ra":                      "0\n",
	}
	want := map[string]string{
		"net/netfilter/nf_conntrack_max":                     "32768", // of 512 MiB
		"net/netfilter/nf_conntrack_tcp_timeout_established": "86400",
		"net/netfilter/nf_conntrack_tcp_timeout_close_wait":  "7200\n",
		"net/ipv4/ip_forward":                                "1",
		"net/ipv6/conf/all/forwarding":                       "1",
		"net/ipv6/conf/all/accept_ra":                        "1\n",
		"net/ipv6/conf/eth0/accept_ra":                       "2",
		"net/ipv6/conf/wlan0/accept_ra":                      "0\n",
	}
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var logged bytes.Buffer
	o := Options{Root: root, RAM: 512 << 20, Log: slog.New(slog.NewTextHandler(&logged, nil))}
	read := func() map[string]string {
		got := map[string]string{}
		for name := range files {
			b, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(b)
		}
		return got
	}
	Apply(o)
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("after Apply (-want +got):\n%s", diff)
	}
	if line := "name=net.ipv6.conf.eth0.accept_ra value=2 was=1"; !strings.Contains(logged.String(), line) {
		t.Errorf("the log lacks %q:\n%s", line, &logged)
	}
	logged.Reset()
	Apply(o)
	if logged.Len() != 0 {
		t.Errorf("a second Apply logged:\n%s", &logged)
	}
	// The kernel shows this number and takes no other, not even from root.
	limit := filepath.Join(root, "net/netfilter/nf_conntrack_max")
	if err := os.Remove(limit); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/oom_score", limit); err != nil {
		t.Fatal(err)
	}
	Apply(o)
	if !strings.Contains(logged.String(), "sysctl -w net.netfilter.nf_conntrack_max=32768 on the host") {
		t.Errorf("a parameter that cannot be set was not named: %s", &logged)
	}
	// Parameters that are not there (no IPv6, no conntrack) are left alone.
	Apply(Options{Root: t.TempDir(), RAM: 1 << 30, Log: o.Log})
}
