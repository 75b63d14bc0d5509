package config

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/proxy"
)

var compareAddrs = cmpopts.EquateComparable(netip.Prefix{}, netip.AddrPort{})

// world is what Load reads.
type world struct {
	flags map[string][]string
	env   map[string]string
	files map[string]string // by path below a directory of the test's own
}

func (w world) load(t *testing.T) (c Config, warnings []string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range w.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := map[string][]string{"config": {filepath.Join(dir, "config.yaml")}}
	for name, given := range w.flags {
		flags[name] = given
	}
	if _, ok := w.files["config.yaml"]; !ok && w.flags["config"] == nil {
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, warnings, err = Load(Sources{
		Flags:     flags,
		LookupEnv: func(name string) (string, bool) { v, ok := w.env[name]; return v, ok },
	})
	for i := range warnings {
		warnings[i] = strings.ReplaceAll(warnings[i], dir+"/", "")
	}
	return c, warnings, err
}

// defaults is the configuration of one who sets nothing.
func defaults() Config {
	return Config{
		ProxyMode:          proxy.ModeAuto,
		NodePortAddresses:  []string{"primary"},
		ExternalIPs:        proxy.ExternalIPsAll,
		SyncPeriod:         30 * time.Second,
		MinSyncPeriod:      100 * time.Millisecond,
		HealthzBindAddress: netip.MustParseAddrPort("0.0.0.0:10256"),
		MetricsBindAddress: netip.MustParseAddrPort("127.0.0.1:10249"),
		MetricsServices:    500,
		DataDir:            "/var/lib/sluice",

		CacheCommitInterval: 5 * time.Second,
		Socket:              "/run/sluice/sluice.sock",
		LogFormat:           LogText,
	}
}

func TestLoad(t *testing.T) {
	cidrs := func(s ...string) (p []netip.Prefix) {
		for _, c := range s {
			p = append(p, netip.MustParsePrefix(c))
		}
		return p
	}
	tests := []struct {
		name string
		world
		want func(c *Config) // on top of the defaults
	}{
		{"defaults", world{}, func(*Config) {}},
		{"command line over environment over file over default",
			world{
				flags: map[string][]string{"sync-period": {"1s"}},
				env:   map[string]string{"SLUICE_SYNC_PERIOD": "2s", "SLUICE_MIN_SYNC_PERIOD": "3ms"},
				files: map[string]string{"config.yaml": "sync-period: 4s\nmin-sync-period: 5ms\ndata-dir: /six\n"},
			},
			func(c *Config) {
				c.SyncPeriod, c.MinSyncPeriod, c.DataDir = time.Second, 3*time.Millisecond, "/six"
			}},
		{"the last of a repeated flag, all of a repeated list",
			world{flags: map[string][]string{"data-dir": {"/a", "/b"}, "cluster-cidr": {"10.42.0.0/16", "fd42::/56, 10.43.0.0/16"}}},
			func(c *Config) {
				c.DataDir, c.ClusterCIDRs = "/b", cidrs("10.42.0.0/16", "fd42::/56", "10.43.0.0/16")
			}},
		{"a list on the command line replaces the file's",
			world{
				flags: map[string][]string{"nodeport-addresses": {"all"}},
				files: map[string]string{"config.yaml": "nodeport-addresses: [primary, 10.0.0.0/8]\n"},
			},
			func(c *Config) { c.NodePortAddresses = []string{"all"} }},
		{"config.yaml.d in the order of names, other files there do not count",
			world{files: map[string]string{
				"config.yaml":                "data-dir: /first\nlog-format: json\n",
				"config.yaml.d/20-b.yaml":    "data-dir: /third\n",
				"config.yaml.d/10-a.yml":     "data-dir: /second\nsync-period: 7s\n",
				"config.yaml.d/30-c.bak":     "data-dir: /never\n",
				"config.yaml.d/sub/40.yaml":  "data-dir: /never\n",
				"config.yaml.d/15-none.yaml": "# nothing\n",
			}},
			func(c *Config) { c.DataDir, c.LogFormat, c.SyncPeriod = "/third", LogJSON, 7*time.Second }},
		{"key+ appends, also in one file, key replaces",
			world{files: map[string]string{
				"config.yaml":          "nodeport-addresses+: localhost\nnodeport-addresses: primary\ncluster-cidr: [10.1.0.0/16]\n",
				"config.yaml.d/a.yaml": "nodeport-addresses+: [10.0.0.0/8, 'fd00::/8,fe00::/8']\ncluster-cidr: 10.2.0.0/16\n",
			}},
			func(c *Config) {
				c.NodePortAddresses = []string{"primary", "localhost", "10.0.0.0/8", "fd00::/8", "fe00::/8"}
				c.ClusterCIDRs = cidrs("10.2.0.0/16")
			}},
		{"key+ without a key before is a key",
			world{files: map[string]string{"config.yaml": "nodeport-addresses+: all\n"}},
			func(c *Config) { c.NodePortAddresses = []string{"all"} }},
		{"types in YAML",
			world{files: map[string]string{"config.yaml": "masquerade-all: true\nv: 4\nmin-sync-period: 0\nhostname-override: '12'\n"}},
			func(c *Config) {
				c.MasqueradeAll, c.LogLevel, c.MinSyncPeriod, c.NodeName = true, slog.LevelDebug, 0, "12"
			}},
		{"strings where YAML has types",
			world{files: map[string]string{"config.yaml": "masquerade-all: 'true'\nv: '3'\n"}},
			func(c *Config) { c.MasqueradeAll = true }},
		{"an empty variable unsets a number and empties a string",
			world{
				env:   map[string]string{"SLUICE_SYNC_PERIOD": "", "SLUICE_HEALTHZ_BIND_ADDRESS": "", "SLUICE_MASQUERADE_ALL": ""},
				files: map[string]string{"config.yaml": "sync-period: 9s\nmasquerade-all: true\n"},
			},
			func(c *Config) {
				c.SyncPeriod, c.HealthzBindAddress, c.MasqueradeAll = 9*time.Second, netip.AddrPort{}, true
			}},
		{"a flag that turns a file's true off",
			world{
				flags: map[string][]string{"masquerade-all": {"false"}},
				files: map[string]string{"config.yaml": "masquerade-all: true\n"},
			},
			func(*Config) {}},
		{"an address without port gets kube-proxy's",
			world{flags: map[string][]string{"healthz-bind-address": {"::1"}, "metrics-bind-address": {"[::]:9000"}}},
			func(c *Config) {
				c.HealthzBindAddress = netip.MustParseAddrPort("[::1]:10256")
				c.MetricsBindAddress = netip.MustParseAddrPort("[::]:9000")
			}},
		{"metrics",
			world{flags: map[string][]string{"metrics-services": {"0"}, "profiling": {"true"}}},
			func(c *Config) { c.MetricsServices, c.Profiling = 0, true }},
		{"words in any case",
			world{flags: map[string][]string{"detect-local-mode": {"bridgeinterface"}, "pod-bridge-interface": {"cni0"}, "proxy-mode": {"NFTables"}, "log-level": {"WARN"}}},
			func(c *Config) {
				c.DetectLocalMode, c.PodBridgeInterface = proxy.DetectBridgeInterface, "cni0"
				c.ProxyMode, c.LogLevel = proxy.ModeNFTables, slog.LevelWarn
			}},
		{"a node's name is in lower case",
			world{flags: map[string][]string{"hostname-override": {" Node-A "}}},
			func(c *Config) { c.NodeName = "node-a" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, warnings, err := test.load(t)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %q", err, warnings)
			}
			want := defaults()
			test.want(&want)
			if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
				t.Errorf("wrong configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := []struct {
		name string
		world
		want []string // parts of the error
	}{
		{"a flag names itself", world{flags: map[string][]string{"sync-period": {"30"}}}, []string{"--sync-period: ", `"30"`, "30s"}},
		{"a variable names itself", world{env: map[string]string{"SLUICE_MASQUERADE_ALL": "maybe"}}, []string{"SLUICE_MASQUERADE_ALL: ", `"maybe"`}},
		{"a file names itself and the key", world{files: map[string]string{"config.yaml": "cluster-cidr: [10.0.0.0/8, ten]\n"}}, []string{"config.yaml: cluster-cidr: ", `"ten"`}},
		{"all errors at once", world{flags: map[string][]string{"proxy-mode": {"ipvs"}, "v": {"-1"}}},
			[]string{`"ipvs" is not one of auto, nftables, iptables`, `-v: "-1"`}},
		{"fewer Services than none", world{flags: map[string][]string{"metrics-services": {"-1"}}}, []string{"--metrics-services: ", "whole number from 0"}},
		{"port 0", world{flags: map[string][]string{"healthz-bind-address": {"0.0.0.0:0"}}}, []string{"1 to 65535"}},
		{"port 70000", world{flags: map[string][]string{"healthz-bind-address": {"0.0.0.0:70000"}}}, []string{"1 to 65535"}},
		{"a host name to bind to", world{flags: map[string][]string{"metrics-bind-address": {"localhost:1"}}}, []string{"IP:PORT"}},
		{"detect-local-mode", world{flags: map[string][]string{"detect-local-mode": {"NodeCidrs"}}}, []string{"not one of ClusterCIDR, NodeCIDR"}},
		{"log-level", world{flags: map[string][]string{"log-level": {"loud"}}}, []string{"debug, info, warn, error"}},
		{"a named file that is missing", world{flags: map[string][]string{"config": {"/nonexistent/config.yaml"}}}, []string{"/nonexistent/config.yaml", "no such file"}},
		{"a directory for a file", world{flags: map[string][]string{"config": {"/proc"}}}, []string{"/proc", "regular file"}},
		{"a device for a file", world{flags: map[string][]string{"config": {"/dev/zero"}}}, []string{"/dev/zero", "regular file"}},
		{"not YAML", world{files: map[string]string{"config.yaml": "a: b: c\n"}}, []string{"config.yaml", "YAML"}},
		{"not a mapping", world{files: map[string]string{"config.yaml": "- v\n"}}, []string{"config.yaml", "mapping"}},
		{"binary junk", world{files: map[string]string{"config.yaml": "\x7fELF\x00\x01"}}, []string{"config.yaml"}},
		{"a key twice", world{files: map[string]string{"config.yaml": "v: 1\nv: 2\n"}}, []string{"config.yaml", "line 2"}},
		{"one bad file among good ones", world{files: map[string]string{"config.yaml": "v: 1\n", "config.yaml.d/x.yaml": "v: [1]\n"}},
			[]string{"config.yaml.d/x.yaml: v: the value is a list, not a whole number"}},
		{"a number for a string", world{files: map[string]string{"config.yaml": "hostname-override: 12\n"}}, []string{"hostname-override: the value is the number 12, not a string; put it in quotes"}},
		{"a boolean for a string", world{files: map[string]string{"config.yaml": "data-dir: on\n"}}, []string{"the boolean true, not a string; put it in quotes"}},
		{"a string for a boolean", world{files: map[string]string{"config.yaml": "masquerade-all: sure\n"}}, []string{"masquerade-all", `"sure" is not true or false`}},
		{"a number for a boolean", world{files: map[string]string{"config.yaml": "masquerade-all: 3\n"}}, []string{"the number 3, not true or false"}},
		{"a mapping", world{files: map[string]string{"config.yaml": "sync-period: {s: 3}\n"}}, []string{"sync-period: the value is a mapping"}},
		{"nothing", world{files: map[string]string{"config.yaml": "sync-period:\n"}}, []string{"sync-period: the value is empty"}},
		{"a number in a list", world{files: map[string]string{"config.yaml": "nodeport-addresses: [primary, 7]\n"}}, []string{"nodeport-addresses: item 2 is the number 7"}},
		{"a list for a string", world{files: map[string]string{"config.yaml": "socket: [/a]\n"}}, []string{"socket: the value is a list"}},
		{"appending to what is no list", world{files: map[string]string{"config.yaml": "data-dir+: /a\n"}}, []string{`data-dir+: only lists can be appended to; write "data-dir"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := test.load(t)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the error: %v", part, err)
				}
			}
		})
	}
}

func TestLoadWarnsOfUnknownKeys(t *testing.T) {
	c, warnings, err := world{files: map[string]string{
		"config.yaml":          "cluster-cdir: 10.0.0.0/8\nv: 4\n",
		"config.yaml.d/a.yaml": "config: /elsewhere\nnode-name+: x\n",
	}}.load(t)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, strings.Split(w, " is ignored")[0])
	}
	want := []string{`config.yaml: unknown key "cluster-cdir"`, `config.yaml.d/a.yaml: unknown key "config"`, `config.yaml.d/a.yaml: unknown key "node-name+"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong warnings (-want +got):\n%s", diff)
	}
	if c.LogLevel != slog.LevelDebug {
		t.Error("the key that is known was not read")
	}
}

func TestDefaultFileMayBeMissing(t *testing.T) {
	if _, err := os.Stat(DefaultFile); err == nil {
		t.Skipf("this machine has a %s", DefaultFile)
	}
	c, _, err := Load(Sources{
		LookupEnv: func(string) (string, bool) { return "", false },
	})
	if err != nil || c.NodeName != "" {
		t.Errorf("got node %q, error %v", c.NodeName, err)
	}
}

// Root can read all files, so that the error is made here.
func TestUnreadable(t *testing.T) {
	for err, want := range map[error]bool{os.ErrPermission: true, os.ErrNotExist: false} {
		got := unreadable(&os.PathError{Op: "open", Path: "config.yaml", Err: err})
		if strings.Contains(got.Error(), "run this as root") != want || !strings.Contains(got.Error(), "config.yaml") || !errors.Is(got, err) {
			t.Error(got)
		}
	}
}

func TestFileTooBig(t *testing.T) {
	_, _, err := world{files: map[string]string{"config.yaml": strings.Repeat("#\n", maxFileSize)}}.load(t)
	if err == nil || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Options() {
		for _, name := range []string{o.Name, o.Alias, o.Env()} {
			if name != "" && seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
		if (o.Placeholder == "") != (o.Type == Bool) {
			t.Errorf("--%s: only a Bool has no placeholder", o.Name)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	src := Sources{LookupEnv: func(string) (string, bool) { return "", false },
		Environ: func() []string {
			return []string{"SLUICE_V=4", "HOME=/", "SLUICE_SERVICE_HOST=10.43.0.9", "SLUICE_PORT=tcp://10.43.0.9:80", "SLUICE_CLUSTER_CDIR=10.42.0.0/16"}
		}}
	_, warnings, err := Load(src)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "SLUICE_CLUSTER_CDIR") || err != nil {
		t.Errorf("%q, %v", warnings, err)
	}
}

func TestDoubtfulRanges(t *testing.T) {
	for given, want := range map[string]string{
		"10.42.0.0/16,fd42::/56": "",
		"10.42.0.1/16":           "--cluster-cidr: 10.42.0.1/16 is taken as 10.42.0.0/16",
		"0.0.0.0/0":              "--cluster-cidr: 0.0.0.0/0 holds every address",
		"10.42.0.0/16,::/0":      "--cluster-cidr: ::/0 holds every address",
	} {
		c, warnings, err := world{flags: map[string][]string{"cluster-cidr": {given}}}.load(t)
		if i := slices.IndexFunc(c.ClusterCIDRs, func(p netip.Prefix) bool { return p != p.Masked() }); i >= 0 {
			t.Errorf("%s: bits behind the prefix are left in %v", given, c.ClusterCIDRs)
		}
		if got := strings.Join(warnings, "\n"); err != nil || (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %v, got %q, want %q", given, err, got, want)
		}
	}
}
