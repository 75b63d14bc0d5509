// Package kubeproxy starts a real kube-proxy in a namespace of the lab.
package kubeproxy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"sluice/test/lab"
	"sluice/test/process"
)

// TableName is the name of kube-proxy's nftables table of each family.
const TableName = "kube-proxy"

// Config is what differs between uses. The fields have the names and meanings of KubeProxyConfiguration's.
type Config struct {
	// Mode empty is nftables.
	Mode       string
	Kubeconfig string
	// ContentType to ask the API server for; empty is protobuf.
	ContentType       string
	HostnameOverride  string
	NodePortAddresses []string
	// DetectLocalMode empty is ClusterCIDR.
	DetectLocalMode string
	ClusterCIDR     string
	// Interface is the bridge or the prefix of interface names, as the mode has it.
	Interface     string
	MasqueradeAll bool
	// MinSyncPeriod empty is kube-proxy's default, one second.
	MinSyncPeriod string
	// FeatureGates are switched on or off, by name.
	FeatureGates map[string]bool
}

// document is a KubeProxyConfiguration. Its clients are not slowed down, and it leaves the
// machine's connection tracking as it is.
func (c *Config) document() ([]byte, error) {
	nftables := map[string]any{"masqueradeAll": c.MasqueradeAll, "syncPeriod": "30s"}
	if c.MinSyncPeriod != "" {
		nftables["minSyncPeriod"] = c.MinSyncPeriod
	}
	mode := c.Mode
	if mode == "" {
		mode = "nftables"
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"clientConnection":  map[string]any{"kubeconfig": c.Kubeconfig, "contentType": c.ContentType, "qps": 1000, "burst": 1000},
		"mode":              mode,
		"nftables":          nftables,
		"hostnameOverride":  c.HostnameOverride,
		"nodePortAddresses": c.NodePortAddresses,
		"detectLocalMode":   c.DetectLocalMode,
		"detectLocal":       map[string]any{"bridgeInterface": c.Interface, "interfaceNamePrefix": c.Interface},
		"clusterCIDR":       c.ClusterCIDR,
		"featureGates":      c.FeatureGates,
		"conntrack":         map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
}

// Process is a kube-proxy that was started.
type Process struct {
	*process.Process
	output bytes.Buffer
}

// Start starts a binary in a namespace, with its configuration in the folder dir. It ends
// with this process, if nothing ends it before.
func Start(ns *lab.Namespace, binary, dir string, c Config) (*Process, error) {
	document, err := c.document()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, document, 0o600); err != nil {
		return nil, err
	}
	p := &Process{}
	cmd := exec.Command(binary, "--config", path)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if p.Process, err = process.Start(ns, cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// Output is all that the process wrote. It must have ended.
func (p *Process) Output() string {
	<-p.Ended
	return p.output.String()
}
