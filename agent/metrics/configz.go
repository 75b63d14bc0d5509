package metrics

import (
	"encoding/json"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/config"
)

// kubeProxyConfiguration has the fields of kube-proxy's KubeProxyConfiguration
// (k8s.io/kube-proxy/config/v1alpha1) that have a meaning here.
type kubeProxyConfiguration struct {
	Kind               string           `json:"kind"`
	APIVersion         string           `json:"apiVersion"`
	ClientConnection   clientConnection `json:"clientConnection"`
	HostnameOverride   string           `json:"hostnameOverride"`
	HealthzBindAddress string           `json:"healthzBindAddress"`
	MetricsBindAddress string           `json:"metricsBindAddress"`
	EnableProfiling    bool             `json:"enableProfiling"`
	Mode               string           `json:"mode"`
	NFTables           nftablesConfig   `json:"nftables"`
	DetectLocalMode    string           `json:"detectLocalMode"`
	DetectLocal        detectLocal      `json:"detectLocal"`
	ClusterCIDR        string           `json:"clusterCIDR"`
	NodePortAddresses  []string         `json:"nodePortAddresses"`
}

// clientConnection names the kubeconfig; what is in it stays secret.
type clientConnection struct {
	Kubeconfig string `json:"kubeconfig"`
}

type nftablesConfig struct {
	MasqueradeAll bool            `json:"masqueradeAll"`
	SyncPeriod    metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
}

type detectLocal struct {
	BridgeInterface     string `json:"bridgeInterface"`
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// ownConfiguration has what kube-proxy's has no field for.
type ownConfiguration struct {
	Manifests           string          `json:"manifests"`
	DataDir             string          `json:"dataDir"`
	CacheCommitInterval metav1.Duration `json:"cacheCommitInterval"`
	Socket              string          `json:"socket"`
	ExternalIPs         string          `json:"externalIPs"`
	MetricsServices     int             `json:"metricsServices"`
	LogLevel            string          `json:"logLevel"`
	LogFormat           string          `json:"logFormat"`
}

// configz is the configuration as kube-proxy's /configz shows it.
func configz(c *config.Config, mode string) ([]byte, error) {
	var cidrs []string
	for _, p := range c.ClusterCIDRs {
		cidrs = append(cidrs, p.String())
	}
	return json.Marshal(map[string]any{
		"kubeproxy.config.k8s.io": kubeProxyConfiguration{
			Kind: "KubeProxyConfiguration", APIVersion: "kubeproxy.config.k8s.io/v1alpha1",
			ClientConnection: clientConnection{c.Kubeconfig}, HostnameOverride: c.NodeName,
			HealthzBindAddress: bindAddress(c.HealthzBindAddress), MetricsBindAddress: bindAddress(c.MetricsBindAddress),
			EnableProfiling: c.Profiling, Mode: mode,
			NFTables:        nftablesConfig{c.MasqueradeAll, metav1.Duration{Duration: c.SyncPeriod}, metav1.Duration{Duration: c.MinSyncPeriod}},
			DetectLocalMode: string(c.DetectLocalMode), DetectLocal: detectLocal{c.PodBridgeInterface, c.PodInterfaceNamePrefix},
			ClusterCIDR: strings.Join(cidrs, ","), NodePortAddresses: c.NodePortAddresses,
		},
		"sluice": ownConfiguration{
			Manifests: c.Manifests, DataDir: c.DataDir, CacheCommitInterval: metav1.Duration{Duration: c.CacheCommitInterval},
			Socket: c.Socket, ExternalIPs: c.ExternalIPs, MetricsServices: c.MetricsServices,
			LogLevel: strings.ToLower(c.LogLevel.String()), LogFormat: c.LogFormat,
		},
	})
}

// bindAddress is empty for what is not served.
func bindAddress(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
