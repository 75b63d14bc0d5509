package proxy

import (
	"fmt"
	"net/netip"
	"strings"
)

// DetectionFlags are the flags of local detection.
type DetectionFlags struct {
	// Mode is --detect-local-mode; DetectNone if it is not set.
	Mode DetectMode
	// ClusterCIDRs is --cluster-cidr, of both families.
	ClusterCIDRs []netip.Prefix
	// BridgeInterface is --pod-bridge-interface.
	BridgeInterface string
	// InterfaceNamePrefix is --pod-interface-name-prefix.
	InterfaceNamePrefix string
}

// Select chooses the local detection of one family. podCIDRs are the Node's, of
// both families, as they are written there: they are used if neither the mode nor a cluster
// CIDR of this family is set. why is a sentence for the log that says what was chosen and why.
func (flags DetectionFlags) Select(f Family, podCIDRs []string) (d Detection, why string, err error) {
	cluster, node := ofFamily(f, flags.ClusterCIDRs), parsePrefixes(f, podCIDRs)
	switch flags.Mode {
	case DetectNone:
		switch {
		case len(cluster) > 0:
			return byCIDR(DetectClusterCIDR, f, cluster, "--cluster-cidr")
		case len(node) > 0:
			return byCIDR(DetectNodeCIDR, f, node, "the Node's podCIDRs, as --cluster-cidr has none of this family")
		}
		return Detection{}, noDetection(f, "neither --cluster-cidr nor the Node's podCIDRs have a range"), nil
	case DetectClusterCIDR:
		if len(cluster) == 0 {
			return Detection{}, noDetection(f, "--cluster-cidr has no range"), nil
		}
		return byCIDR(DetectClusterCIDR, f, cluster, "--cluster-cidr")
	case DetectNodeCIDR:
		if len(node) == 0 {
			return Detection{}, noDetection(f, "the Node's podCIDRs have no range"), nil
		}
		return byCIDR(DetectNodeCIDR, f, node, "the Node's podCIDRs")
	case DetectBridgeInterface:
		return byInterface(flags.Mode, f, flags.BridgeInterface, "--pod-bridge-interface")
	case DetectInterfaceNamePrefix:
		return byInterface(flags.Mode, f, flags.InterfaceNamePrefix, "--pod-interface-name-prefix")
	}
	return Detection{}, "", fmt.Errorf("choose the local detection: --detect-local-mode is %q, which is none of %s, %s, %s and %s",
		flags.Mode, DetectClusterCIDR, DetectNodeCIDR, DetectBridgeInterface, DetectInterfaceNamePrefix)
}

func byCIDR(mode DetectMode, f Family, cidrs []netip.Prefix, from string) (Detection, string, error) {
	var texts []string
	for _, c := range cidrs {
		texts = append(texts, c.String())
	}
	return Detection{Mode: mode, PodCIDRs: cidrs},
		fmt.Sprintf("%v: sources in %s count as pods (%s: %s).", f, strings.Join(texts, " and "), mode, from), nil
}

func byInterface(mode DetectMode, f Family, name, flag string) (Detection, string, error) {
	if name == "" {
		return Detection{}, "", fmt.Errorf("choose the local detection: --detect-local-mode %s needs %s", mode, flag)
	}
	return Detection{Mode: mode, Interface: name},
		fmt.Sprintf("%v: what comes in through %s counts as pods (%s: %s).", f, name, mode, flag), nil
}

func noDetection(f Family, because string) string {
	return fmt.Sprintf("%v: no source counts as a pod, because %s of this family.", f, because)
}
