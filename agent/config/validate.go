package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/proxy"
)

// maxSocketPath is what fits into sun_path of struct sockaddr_un (linux/un.h) with its final zero.
const maxSocketPath = 107

// maxInterfaceName is IFNAMSIZ (linux/if.h) without the final zero.
const maxInterfaceName = 15

// Validate says what keeps the agent from running with this configuration:
// all of it at once, each error with the flag, the value and the remedy.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if msgs := validation.IsDNS1123Subdomain(c.NodeName); c.NodeName != "" && len(msgs) > 0 {
		bad("--hostname-override %q cannot be a node's name: %s", c.NodeName, strings.Join(msgs, "; "))
	}

	detection := proxy.DetectionFlags{Mode: c.DetectLocalMode, ClusterCIDRs: c.ClusterCIDRs,
		BridgeInterface: c.PodBridgeInterface, InterfaceNamePrefix: c.PodInterfaceNamePrefix}
	if _, _, err := detection.Select(proxy.IPv4, nil); err != nil {
		errs = append(errs, err)
	}
	for _, i := range [...]struct{ flag, name string }{
		{"--pod-bridge-interface", c.PodBridgeInterface},
		{"--pod-interface-name-prefix", c.PodInterfaceNamePrefix},
	} {
		if len(i.name) > maxInterfaceName || strings.ContainsAny(i.name, "/ \t\n*") {
			bad("%s %q cannot be an interface's name: at most %d characters, no blank, slash or star", i.flag, i.name, maxInterfaceName)
		}
	}
	if _, err := proxy.ParseNodePortAddresses(c.NodePortAddresses); err != nil {
		errs = append(errs, err)
	}

	if c.SyncPeriod <= 0 {
		bad("--sync-period %v must be greater than 0", c.SyncPeriod)
	}
	if c.CacheCommitInterval <= 0 {
		bad("--cache-commit-interval %v must be greater than 0", c.CacheCommitInterval)
	}
	if c.MinSyncPeriod < 0 {
		bad("--min-sync-period %v must not be negative", c.MinSyncPeriod)
	}
	if c.MinSyncPeriod > c.SyncPeriod {
		bad("--min-sync-period %v must not be longer than --sync-period %v", c.MinSyncPeriod, c.SyncPeriod)
	}

	if h, m := c.HealthzBindAddress, c.MetricsBindAddress; collide(h, m) {
		bad("--healthz-bind-address %v and --metrics-bind-address %v cannot both be listened at; give one of them another port", h, m)
	}

	if !strings.HasPrefix(c.Socket, "/") || len(c.Socket) > maxSocketPath {
		bad("--socket %q must be an absolute path of at most %d bytes", c.Socket, maxSocketPath)
	}
	if !strings.HasPrefix(c.DataDir, "/") {
		bad("--data-dir %q must be an absolute path", c.DataDir)
	}
	return errors.Join(errs...)
}

// collide tells whether one process cannot listen at both addresses: they are the same, or one is all of the other's family.
func collide(a, b netip.AddrPort) bool {
	if !a.IsValid() || !b.IsValid() || a.Port() != b.Port() {
		return false
	}
	a1, b1 := a.Addr().Unmap(), b.Addr().Unmap()
	return a1 == b1 || a1.Is4() == b1.Is4() && (a1.IsUnspecified() || b1.IsUnspecified())
}

// WithoutEffect says which options are set to something that others make meaningless, each with the remedy.
func (c *Config) WithoutEffect() (warnings []string) {
	for _, o := range [...]struct {
		idle      bool
		flag, why string
	}{
		{c.Kubeconfig != "" && c.Manifests != "", "--kubeconfig", "objects come from --manifests; leave out one of the two"},
		{c.PodBridgeInterface != "" && c.DetectLocalMode != proxy.DetectBridgeInterface,
			"--pod-bridge-interface", "it goes with --detect-local-mode BridgeInterface"},
		{c.PodInterfaceNamePrefix != "" && c.DetectLocalMode != proxy.DetectInterfaceNamePrefix,
			"--pod-interface-name-prefix", "it goes with --detect-local-mode InterfaceNamePrefix"},
		{len(c.ClusterCIDRs) > 0 && c.DetectLocalMode != proxy.DetectNone && c.DetectLocalMode != proxy.DetectClusterCIDR,
			"--cluster-cidr", fmt.Sprintf("--detect-local-mode is %s; leave out one of the two", c.DetectLocalMode)},
		{c.Profiling && !c.MetricsBindAddress.IsValid(), "--profiling", "profiles are served at --metrics-bind-address, which is empty"},
	} {
		if o.idle {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", o.flag, o.why))
		}
	}
	return warnings
}
