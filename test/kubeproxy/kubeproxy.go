// Package kubeproxy starts a real kube-proxy in its nftables mode in a namespace of the lab.
package kubeproxy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"sigs.k8s.io/yaml"

	"sluice/test/lab"
)

// TableName is the name of kube-proxy's nftables table of each family.
const TableName = "kube-proxy"

// Config is what differs between uses. The fields have the names and meanings of KubeProxyConfiguration's.
type Config struct {
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
	return yaml.Marshal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"clientConnection":  map[string]any{"kubeconfig": c.Kubeconfig, "contentType": c.ContentType, "qps": 1000, "burst": 1000},
		"mode":              "nftables",
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
	Cmd *exec.Cmd
	// Ended is closed when the process has ended.
	Ended  chan struct{}
	output bytes.Buffer
}

// Start starts a binary in a namespace, with its configuration in the folder dir. It ends
// with this process, if Stop does not end it before.
func Start(ns *lab.Namespace, binary, dir string, c Config) (*Process, error) {
	document, err := c.document()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, document, 0o600); err != nil {
		return nil, err
	}
	p := &Process{Cmd: exec.Command(binary, "--config", path), Ended: make(chan struct{})}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.output, &p.output
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := ns.Start(p.Cmd); err != nil {
		return nil, fmt.Errorf("start kube-proxy: %w", err)
	}
	go func() {
		p.Cmd.Wait()
		close(p.Ended)
	}()
	return p, nil
}

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	p.Cmd.Process.Kill()
	<-p.Ended
}

// Output is all that the process wrote. It must have ended.
func (p *Process) Output() string {
	<-p.Ended
	return p.output.String()
}
