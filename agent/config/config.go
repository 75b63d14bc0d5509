// Package config is the agent's configuration: what can be set, where it is
// read from, and which values are valid.
package config

import (
	"log/slog"
	"net/netip"
	"time"

	"sluice/proxy"
)

// The places where things are unless the configuration says otherwise.
const (
	DefaultFile    = "/etc/rancher/sluice/config.yaml"
	DefaultDataDir = "/var/lib/sluice"
	DefaultSocket  = "/run/sluice/sluice.sock"
)

// EnvPrefix begins the name of every environment variable that sets an option:
// --cluster-cidr is SLUICE_CLUSTER_CIDR.
const EnvPrefix = "SLUICE_"

// The values of Config.LogFormat.
const (
	LogText = "text"
	LogJSON = "json"
)

// Config is the whole configuration. Every field is one option: a flag of
// `sluice agent`, an environment variable and a key of the configuration file.
type Config struct {
	// NodeName (--hostname-override) is the name of this node's Node object. Empty: that of the
	// kubelet's certificate beside the kubeconfig, else the host name, in lower case.
	NodeName string

	// Manifests (--manifests) is a directory of YAML and JSON manifests to read objects from.
	Manifests string
	// Kubeconfig (--kubeconfig) is how to reach the API server, unless Manifests is set. Empty: the
	// one that k3s writes for its own proxy, or another at a known place.
	Kubeconfig string

	// ProxyMode (--proxy-mode) is one of the modes of package proxy.
	ProxyMode string
	// ClusterCIDRs (--cluster-cidr) are the pods' ranges, of both families.
	ClusterCIDRs []netip.Prefix
	// DetectLocalMode (--detect-local-mode) says how pods are told from other sources;
	// proxy.DetectNone leaves the choice to what is known of the node.
	DetectLocalMode proxy.DetectMode
	// PodBridgeInterface (--pod-bridge-interface) goes with proxy.DetectBridgeInterface.
	PodBridgeInterface string
	// PodInterfaceNamePrefix (--pod-interface-name-prefix) goes with proxy.DetectInterfaceNamePrefix.
	PodInterfaceNamePrefix string
	// NodePortAddresses (--nodeport-addresses) is for proxy.ParseNodePortAddresses.
	NodePortAddresses []string
	// ExternalIPs (--external-ips) is one of the values of package proxy.
	ExternalIPs string
	// MasqueradeAll (--masquerade-all) replaces the source of every flow to a ClusterIP.
	MasqueradeAll bool

	// SyncPeriod (--sync-period) is how often the agent looks at what gives no notice of
	// its changes. Health is judged by it, too. Greater than 0.
	SyncPeriod time.Duration
	// MinSyncPeriod (--min-sync-period) is the shortest time between two writes while
	// changes keep coming. A change that comes alone is written at once.
	MinSyncPeriod time.Duration

	// HealthzBindAddress (--healthz-bind-address) is where /healthz and /livez are served.
	// The zero value serves neither.
	HealthzBindAddress netip.AddrPort
	// MetricsBindAddress (--metrics-bind-address) is where /metrics, /proxyMode and /configz are
	// served. The zero value serves none.
	MetricsBindAddress netip.AddrPort
	// MetricsServices (--metrics-services) is for how many Services new connections are told; 0 is none.
	MetricsServices int
	// Profiling (--profiling) serves profiles of the process beside the metrics.
	Profiling bool

	// DataDir (--data-dir) is for what the agent keeps over a restart: the cache of objects.
	DataDir string
	// CacheCommitInterval (--cache-commit-interval) is the least time between two writes of the
	// cache while objects keep changing; each wears the SD card a little.
	CacheCommitInterval time.Duration
	// Socket (--socket) is the unix socket of `sluice status` and `sluice get`.
	Socket string

	// LogLevel (--log-level, and --v 4 or more for debug) is the lowest level that is logged.
	LogLevel slog.Level
	// LogFormat (--log-format) is LogText or LogJSON.
	LogFormat string
}
