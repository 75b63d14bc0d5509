package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice/proxy"
)

// Type is the form of an option's value.
type Type uint8

// The types of option.
const (
	String   Type = iota
	List          // comma-separated, and the flag can be given more than once
	Bool          // true or false
	Int           // decimal
	Duration      // as time.ParseDuration reads it: 100ms, 30s, 1m
)

func (t Type) String() string {
	return [...]string{"a string", "a list of strings", "true or false", "a whole number", `a duration like "30s"`}[t]
}

// Option is one thing that can be set.
type Option struct {
	// Name is the flag without dashes, and the key in a configuration file.
	Name string
	// Alias is another name of the flag; empty for none. It is not a key.
	Alias string
	Type  Type
	// Placeholder stands for the value in the help text.
	Placeholder string
	// Default is what an option that is nowhere set has, in the form of a flag's value.
	Default string
	// Values are the words that it can have, for completion; nil if they cannot be listed.
	Values []string
	// Usage is one sentence for the help text.
	Usage string

	// set parses the items (one, except for a List) into the Config.
	set func(c *Config, items []string) error
	// doubt is about items that set accepts and that hardly mean what they say; nil for none.
	doubt func(items []string) []string
}

// Env is the option's environment variable.
func (o *Option) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// fileOption is the option that names the configuration file; it cannot be set in one.
const fileOption = "config"

// Options lists all options in the order of the help text.
func Options() []Option {
	return []Option{
		{Name: "manifests", Placeholder: "DIR",
			Usage: "read Services, EndpointSlices, ServiceCIDRs and this node's Node from the YAML and JSON files in DIR; no cluster is needed",
			set:   text(func(c *Config) *string { return &c.Manifests })},
		{Name: "kubeconfig", Placeholder: "FILE",
			Usage: "how to reach the API server, without --manifests (default: k3s's, RKE2's or kubeadm's own for its proxy)",
			set:   text(func(c *Config) *string { return &c.Kubeconfig })},

		{Name: "hostname-override", Alias: "node-name", Placeholder: "NAME",
			Usage: "name of this node's Node object (default: that of the kubelet's certificate, else the host name)",
			set:   text(func(c *Config) *string { return &c.NodeName })},
		{Name: "cluster-cidr", Type: List, Placeholder: "CIDR[,CIDR]",
			Usage: "the pods' address ranges, of one IP family or both",
			set:   setPrefixes(func(c *Config) *[]netip.Prefix { return &c.ClusterCIDRs }), doubt: doubtPrefixes},
		{Name: "detect-local-mode", Placeholder: "MODE", Values: []string{string(proxy.DetectClusterCIDR),
			string(proxy.DetectNodeCIDR), string(proxy.DetectBridgeInterface), string(proxy.DetectInterfaceNamePrefix)},
			Usage: "how pods are told from other sources: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix " +
				"(default: ClusterCIDR if --cluster-cidr has a range of the family, else NodeCIDR)",
			set: oneOf(func(c *Config) *proxy.DetectMode { return &c.DetectLocalMode }, proxy.DetectNone,
				proxy.DetectClusterCIDR, proxy.DetectNodeCIDR, proxy.DetectBridgeInterface, proxy.DetectInterfaceNamePrefix)},
		{Name: "pod-bridge-interface", Placeholder: "NAME",
			Usage: "the pods' bridge, for --detect-local-mode BridgeInterface",
			set:   text(func(c *Config) *string { return &c.PodBridgeInterface })},
		{Name: "pod-interface-name-prefix", Placeholder: "PREFIX",
			Usage: "what the names of the pods' interfaces begin with, for --detect-local-mode InterfaceNamePrefix",
			set:   text(func(c *Config) *string { return &c.PodInterfaceNamePrefix })},
		{Name: "nodeport-addresses", Type: List, Placeholder: "CIDR|WORD[,...]", Default: "primary", Values: []string{"primary", "localhost", "all"},
			Usage: "which of this node's addresses serve NodePorts: CIDRs, primary, localhost or all",
			set:   list(func(c *Config) *[]string { return &c.NodePortAddresses })},

		{Name: "proxy-mode", Placeholder: "MODE", Default: proxy.ModeAuto, Values: []string{proxy.ModeAuto, proxy.ModeNFTables, proxy.ModeIPTables},
			Usage: "auto (nftables if the kernel has all it needs, else iptables), nftables or iptables",
			set:   oneOf(func(c *Config) *string { return &c.ProxyMode }, proxy.ModeAuto, proxy.ModeNFTables, proxy.ModeIPTables)},
		{Name: "external-ips", Placeholder: "WHICH", Default: proxy.ExternalIPsAll, Values: []string{proxy.ExternalIPsAll, proxy.ExternalIPsForeign, proxy.ExternalIPsNone},
			Usage: "which externalIPs of Services are served: all, foreign (none of this node, the API server, Services and pods) or none",
			set:   oneOf(func(c *Config) *string { return &c.ExternalIPs }, proxy.ExternalIPsAll, proxy.ExternalIPsForeign, proxy.ExternalIPsNone)},
		{Name: "masquerade-all", Type: Bool,
			Usage: "replace the source address of every connection to a ClusterIP",
			set:   setBool(func(c *Config) *bool { return &c.MasqueradeAll })},
		{Name: "sync-period", Type: Duration, Placeholder: "TIME", Default: "30s",
			Usage: "how often the agent looks at what gives no notice of its changes, such as stale flows; a write that waits for twice this time makes /healthz fail",
			set:   setDuration(func(c *Config) *time.Duration { return &c.SyncPeriod })},
		{Name: "min-sync-period", Type: Duration, Placeholder: "TIME", Default: "100ms",
			Usage: "while changes keep coming, write at most once in this time; a change that comes alone is written at once",
			set:   setDuration(func(c *Config) *time.Duration { return &c.MinSyncPeriod })},

		{Name: "healthz-bind-address", Placeholder: "IP[:PORT]", Default: "0.0.0.0:10256",
			Usage: `serve /healthz and /livez here; "" serves neither`,
			set:   setAddrPort(func(c *Config) *netip.AddrPort { return &c.HealthzBindAddress }, 10256)},
		{Name: "metrics-bind-address", Placeholder: "IP[:PORT]", Default: "127.0.0.1:10249",
			Usage: `serve /metrics, /proxyMode, /configz, /healthz and at / a status page here; "" serves none`,
			set:   setAddrPort(func(c *Config) *netip.AddrPort { return &c.MetricsBindAddress }, 10249)},
		{Name: "metrics-services", Type: Int, Placeholder: "N", Default: "500",
			Usage: "count the new connections of N Services at most in /metrics; 0 counts none",
			set:   setCount(func(c *Config) *int { return &c.MetricsServices })},
		{Name: "profiling", Type: Bool,
			Usage: "serve profiles of this process at /debug/pprof/ beside the metrics",
			set:   setBool(func(c *Config) *bool { return &c.Profiling })},
		{Name: "socket", Placeholder: "PATH", Default: DefaultSocket,
			Usage: "unix socket on which the other commands ask the agent",
			set:   text(func(c *Config) *string { return &c.Socket })},

		{Name: fileOption, Placeholder: "FILE", Default: DefaultFile,
			Usage: "configuration file; the *.yaml files in FILE.d are read after it",
			set:   func(*Config, []string) error { return nil }}, // Load has read it by then
		{Name: "data-dir", Placeholder: "DIR", Default: DefaultDataDir,
			Usage: "directory for the cache of objects, from which the node is served until their source answers",
			set:   text(func(c *Config) *string { return &c.DataDir })},
		{Name: "cache-commit-interval", Type: Duration, Placeholder: "TIME", Default: "5s",
			Usage: "while objects keep changing, write the cache at most once in this time",
			set:   setDuration(func(c *Config) *time.Duration { return &c.CacheCommitInterval })},
		{Name: "log-level", Placeholder: "LEVEL", Default: "info", Values: []string{"debug", "info", "warn", "error"},
			Usage: "lowest level that is logged: debug, info, warn or error",
			set:   setLogLevel},
		{Name: "v", Type: Int, Placeholder: "N", Default: "0",
			Usage: "verbosity as kube-proxy has it: 4 and more is --log-level debug",
			set:   setVerbosity},
		{Name: "log-format", Placeholder: "FORMAT", Default: LogText, Values: []string{LogText, LogJSON},
			Usage: "text or json",
			set:   oneOf(func(c *Config) *string { return &c.LogFormat }, LogText, LogJSON)},
	}
}

func text(field func(*Config) *string) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		*field(c) = items[0]
		return nil
	}
}

func list(field func(*Config) *[]string) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		*field(c) = items
		return nil
	}
}

// oneOf accepts valid words in any case. The empty one is not shown in errors.
func oneOf[T ~string](field func(*Config) *T, valid ...T) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		var shown []string
		for _, v := range valid {
			if strings.EqualFold(items[0], string(v)) {
				*field(c) = v
				return nil
			}
			if v != "" {
				shown = append(shown, string(v))
			}
		}
		return fmt.Errorf("%q is not one of %s", items[0], strings.Join(shown, ", "))
	}
}

func setBool(field func(*Config) *bool) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		b, err := strconv.ParseBool(items[0])
		if err != nil {
			return fmt.Errorf("%q is not %v", items[0], Bool)
		}
		*field(c) = b
		return nil
	}
}

func setDuration(field func(*Config) *time.Duration) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		d, err := time.ParseDuration(items[0])
		if err != nil {
			return fmt.Errorf("%q is not %v (units: ms, s, m, h)", items[0], Duration)
		}
		*field(c) = d
		return nil
	}
}

// setAddrPort reads IP:PORT, or IP alone with kube-proxy's port. "" is the zero AddrPort.
func setAddrPort(field func(*Config) *netip.AddrPort, port uint16) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		s := items[0]
		if s == "" {
			*field(c) = netip.AddrPort{}
			return nil
		}
		if addr, err := netip.ParseAddr(s); err == nil {
			*field(c) = netip.AddrPortFrom(addr, port)
			return nil
		}
		ap, err := netip.ParseAddrPort(s)
		if err != nil || ap.Port() == 0 {
			return fmt.Errorf("%q is not IP:PORT with a port from 1 to 65535, like 127.0.0.1:%d or [::1]:%d", s, port, port)
		}
		*field(c) = ap
		return nil
	}
}

// setPrefixes reads CIDRs. Bits behind the prefix do not count, as with kube-proxy.
func setPrefixes(field func(*Config) *[]netip.Prefix) func(*Config, []string) error {
	return func(c *Config, items []string) error {
		var prefixes []netip.Prefix
		for _, s := range items {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return fmt.Errorf("%q is not a CIDR like 10.42.0.0/16 or fd42::/56", s)
			}
			prefixes = append(prefixes, p.Masked())
		}
		*field(c) = prefixes
		return nil
	}
}

func doubtPrefixes(items []string) (doubts []string) {
	for _, s := range items {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil: // set has said so
		case p.Bits() == 0:
			doubts = append(doubts, fmt.Sprintf("%s holds every address, so that every client is taken for a pod; name the pods' range alone, with k3s 10.42.0.0/16", s))
		case p != p.Masked():
			doubts = append(doubts, fmt.Sprintf("%s is taken as %v", s, p.Masked()))
		}
	}
	return doubts
}

func setLogLevel(c *Config, items []string) error {
	switch strings.ToLower(items[0]) {
	case "debug":
		c.LogLevel = slog.LevelDebug
	case "info":
		c.LogLevel = slog.LevelInfo
	case "warn", "warning":
		c.LogLevel = slog.LevelWarn
	case "error":
		c.LogLevel = slog.LevelError
	default:
		return fmt.Errorf("%q is not one of debug, info, warn, error", items[0])
	}
	return nil
}

func setCount(field func(*Config) *int) func(*Config, []string) error {
	return func(c *Config, items []string) (err error) {
		*field(c), err = parseCount(items[0])
		return err
	}
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a whole number from 0", s)
	}
	return n, nil
}

// setVerbosity follows the Kubernetes logging conventions, where 4 is the level of debugging.
func setVerbosity(c *Config, items []string) error {
	n, err := parseCount(items[0])
	if err != nil {
		return err
	}
	if n >= 4 {
		c.LogLevel = slog.LevelDebug
	}
	return nil
}
