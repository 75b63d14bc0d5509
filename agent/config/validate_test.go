package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
)

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *Config)
		want   []string // parts of the error; none: valid
	}{
		{"manifests", func(c *Config) {}, nil},
		{"kubeconfig beside manifests", func(c *Config) { c.Kubeconfig = "/k" }, nil},
		{"no health server", func(c *Config) { c.HealthzBindAddress = netip.AddrPort{} }, nil},
		{"dual-stack pods", func(c *Config) {
			c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/56")}
		}, nil},
		{"no least time between writes", func(c *Config) { c.MinSyncPeriod = 0 }, nil},

		{"node name", func(c *Config) { c.NodeName = "a_b" }, []string{`--hostname-override "a_b"`, "lower case"}},
		{"bridge without name", func(c *Config) { c.DetectLocalMode = proxy.DetectBridgeInterface }, []string{"--pod-bridge-interface"}},
		{"prefix without name", func(c *Config) { c.DetectLocalMode = proxy.DetectInterfaceNamePrefix }, []string{"--pod-interface-name-prefix"}},
		{"interface name too long", func(c *Config) {
			c.DetectLocalMode, c.PodBridgeInterface = proxy.DetectBridgeInterface, "sixteen-letters-"
		}, []string{`--pod-bridge-interface "sixteen-letters-"`, "15"}},
		{"interface name with a star", func(c *Config) { c.PodInterfaceNamePrefix = "cali*" }, []string{`--pod-interface-name-prefix "cali*"`}},
		{"node port addresses", func(c *Config) { c.NodePortAddresses = []string{"primary", "secondary"} }, []string{"--nodeport-addresses", `"secondary"`}},
		{"sync period", func(c *Config) { c.SyncPeriod = 0 }, []string{"--sync-period 0s must be greater than 0"}},
		{"negative time", func(c *Config) { c.MinSyncPeriod = -1 }, []string{"--min-sync-period"}},
		{"times the wrong way round", func(c *Config) { c.MinSyncPeriod = time.Minute }, []string{"--min-sync-period 1m0s", "--sync-period 30s"}},
		{"one port for two", func(c *Config) { c.MetricsBindAddress = netip.MustParseAddrPort("127.0.0.1:10256") },
			[]string{"--healthz-bind-address 0.0.0.0:10256 and --metrics-bind-address 127.0.0.1:10256", "another port"}},
		{"relative socket", func(c *Config) { c.Socket = "s" }, []string{`--socket "s"`, "absolute"}},
		{"long socket", func(c *Config) { c.Socket = "/" + strings.Repeat("s", 107) }, []string{"107 bytes"}},
		{"relative data dir", func(c *Config) { c.DataDir = "data" }, []string{`--data-dir "data"`}},
		{"all at once", func(c *Config) { c.DataDir, c.Socket, c.SyncPeriod = "", "", -1 }, []string{"--data-dir", "--socket", "--sync-period"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := defaults()
			c.Manifests = "/m"
			test.change(&c)
			err := c.Validate()
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("got %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the error: %v", part, err)
				}
			}
		})
	}
}

func TestWithoutEffect(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"":                            func(*Config) {},
		"--kubeconfig":                func(c *Config) { c.Kubeconfig, c.Manifests = "/k", "/m" },
		"--pod-bridge-interface":      func(c *Config) { c.PodBridgeInterface = "cni0" },
		"--pod-interface-name-prefix": func(c *Config) { c.PodInterfaceNamePrefix = "veth" },
		"--cluster-cidr": func(c *Config) {
			c.ClusterCIDRs, c.DetectLocalMode = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, proxy.DetectNodeCIDR
		},
		"--profiling": func(c *Config) { c.Profiling, c.MetricsBindAddress = true, netip.AddrPort{} },
	} {
		c := defaults()
		change(&c)
		got := strings.Join(c.WithoutEffect(), "\n")
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") || strings.Contains(got, "\n") {
			t.Errorf("%q: %q", want, got)
		}
	}
}
