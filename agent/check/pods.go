package check

import (
	"bufio"
	"net/netip"
	"os"
	"strings"

	"sluice/proxy"
)

// podRanges are the pods' address ranges of one family.
type podRanges struct {
	// list is empty if none is known.
	list []string
	// others are known, of the other family: perhaps pods have no addresses of this one.
	others bool
}

// unknownRange stands for a range in a remedy.
const unknownRange = "PODS"

// each returns the ranges for a remedy, and what to put behind it.
func (p podRanges) each() (list []string, hint string) {
	if len(p.list) > 0 {
		return p.list, ""
	}
	return []string{unknownRange}, " (" + unknownRange + " is the pods' address range, which is not known here: kubectl get nodes -o jsonpath='{.items[*].spec.podCIDRs}' " +
		"lists each node's part of it; set --cluster-cidr to it)"
}

// pods are the ranges as far as they are known: configured, or those that flannel or this node's Node has.
func (l *looker) pods(f proxy.Family) podRanges {
	known := l.Config.ClusterCIDRs
	if len(known) == 0 {
		known = flannelRanges(l.path("run/flannel/subnet.env"))
	}
	if len(known) == 0 && l.manifests != nil {
		known = l.manifests.podCIDRs
	}
	var p podRanges
	for _, r := range known {
		if proxy.FamilyOf(r.Addr()) == f {
			p.list = append(p.list, r.String())
		} else {
			p.others = true
		}
	}
	return p
}

// flannelRanges reads the cluster's ranges from the file that flannel writes for its CNI plugin.
func flannelRanges(path string) (ranges []netip.Prefix) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if key != "FLANNEL_NETWORK" && key != "FLANNEL_IPV6_NETWORK" {
			continue
		}
		for text := range strings.SplitSeq(value, ",") {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, p)
			}
		}
	}
	return ranges
}
