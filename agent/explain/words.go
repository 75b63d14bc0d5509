package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/proxy"
)

// policyLocal is the traffic policy Local of core/v1.
const policyLocal = "Local"

// sender is who sends, for the rules and for people.
type sender struct {
	proxy.Source
	words string
}

// sender finds out who sends.
func (v *View) sender(from string, r *proxy.Route) (sender, error) {
	if from == "" {
		from = "outside"
		if r == nil || r.Kind == proxy.ClusterIP {
			from = "pod"
		}
	}
	detection := v.State.Settings().Detection
	switch from {
	case "host":
		s := sender{Source: proxy.Source{Local: true}, words: "this node"}
		if len(v.Node.Addrs) > 0 {
			s.Addr = v.Node.Addrs[0]
			s.words += fmt.Sprintf(" (as %v)", s.Addr)
		}
		return s, nil
	case "pod":
		s := sender{words: "a pod"}
		switch {
		case detection.Mode == proxy.DetectNone:
			s.words = "a pod (which no source counts as: neither --cluster-cidr nor the Node's podCIDRs are known)"
		case len(detection.PodCIDRs) > 0:
			s.Addr = detection.PodCIDRs[0].Addr().Next()
			s.words = fmt.Sprintf("a pod (any in %s)", list(detection.PodCIDRs))
		default:
			s.Interface = detection.Interface
			s.words = fmt.Sprintf("a pod (what comes in through %s)", detection.Interface)
		}
		return s, nil
	case "outside":
		return sender{words: "outside the cluster", Source: proxy.Source{Interface: "?"}}, nil
	}
	a, err := netip.ParseAddr(from)
	if err != nil {
		return sender{}, err
	}
	if a = a.Unmap(); proxy.FamilyOf(a) != v.State.Family() {
		return sender{}, fmt.Errorf("%v cannot send to an %v address", a, v.State.Family())
	}
	s := sender{Source: proxy.Source{Addr: a, Local: v.onNode(a), Interface: "?"}, words: a.String()}
	switch {
	case s.Local:
		s.Interface = ""
		s.words += " (this node)"
	case v.State.Decide(s.Source, proxy.Frontend{}).Pod:
		s.words += " (a pod)"
	}
	return s, nil
}

// noService says why a packet that no Service takes ends as it does.
func (v *View) noService(d *proxy.Decision, to netip.Addr) string {
	switch d.Reason {
	case proxy.NoSuchPort:
		return fmt.Sprintf("%v is a Service's ClusterIP, and the Service has no such port", to)
	case proxy.NoSuchClusterIP:
		return fmt.Sprintf("%v is in a range of ClusterIPs (ServiceCIDR), and no Service has it", to)
	}
	if slices.Contains(v.Node.Addrs, to) {
		return "no Service has this port at this node's address: whatever listens on the node answers"
	}
	return "no Service has this address and port: the packet goes where the routes lead"
}

// reason says why a packet that a Service takes ends as it does.
func reason(d *proxy.Decision, from sender, localOnly bool) string {
	switch d.Reason {
	case proxy.SourceRefused:
		if !from.Addr.IsValid() {
			return fmt.Sprintf("loadBalancerSourceRanges lets in %s only; name an address by --from to see what becomes of it", list(d.Route.SourceRanges))
		}
		return fmt.Sprintf("loadBalancerSourceRanges lets in %s only", list(d.Route.SourceRanges))
	case proxy.NoEndpoint:
		what := "no endpoint is ready"
		if localOnly {
			what = "the traffic policy is Local, and no endpoint on this node is ready"
		}
		if d.Verdict == proxy.Dropped {
			return what + "; others may have one, so the client is not told"
		}
		return what
	}
	n := len(d.Endpoints)
	one := "to one of %d endpoints, each with the same chance"
	if n == 1 {
		one = "to the only endpoint"
	}
	if localOnly {
		one += ", as the traffic policy Local keeps it on this node"
	}
	if n == 1 {
		return one
	}
	return fmt.Sprintf(one, n)
}

// masquerade tells whether an endpoint sees an address of this node in the place of the client's, and why.
func (v *View) masquerade(d *proxy.Decision, from sender, endpoint netip.AddrPort) (yes bool, why string) {
	onNode := v.onNode(endpoint.Addr())
	yes = v.State.Masquerades(d, from.Source, endpoint, onNode)
	switch {
	case !yes && onNode && !from.Local:
		why = "it is this node itself"
	case !yes && d.Local:
		why = "the traffic policy Local keeps it"
	case !yes && d.Pod:
		why = "the client is a pod"
	case !yes && d.Route.Masquerade == proxy.MasqueradeOffCluster:
		why = "it is not known which sources are pods"
	case !yes:
		why = "nothing asks for another"
	case !d.Masquerade:
		why = "it is the client itself"
	case d.Route.Masquerade == proxy.MasqueradeAlways:
		why = "so that the reply comes back through this node"
	case from.Local:
		why = "the client is this node"
	default:
		why = "the client is not a pod"
	}
	return yes, why
}

func list(ranges []netip.Prefix) string {
	var words []string
	for _, r := range ranges {
		words = append(words, r.String())
	}
	return strings.Join(words, ", ")
}
