package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// NodePortSelector chooses the addresses of this node that serve NodePorts, as
// --nodeport-addresses says. The zero value chooses all.
type NodePortSelector struct {
	primary bool
	cidrs   []netip.Prefix
}

// ParseNodePortAddresses reads the values of --nodeport-addresses: CIDRs, and
// the keywords that stand for CIDRs: primary (the Node's address in each
// family), localhost (127.0.0.0/8 and ::1/128) and all (0.0.0.0/0 and ::/0). No values is primary.
func ParseNodePortAddresses(values []string) (NodePortSelector, error) {
	var s NodePortSelector
	for _, value := range values {
		value = strings.TrimSpace(value)
		switch value {
		case "":
		case "primary":
			s.primary = true
		case "localhost":
			s.cidrs = append(s.cidrs, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		case "all":
			s.cidrs = append(s.cidrs, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
		default:
			cidr, ok := parsePrefix(value)
			if !ok {
				return NodePortSelector{}, fmt.Errorf("read --nodeport-addresses: %q is neither a CIDR (such as 192.168.0.0/16) nor one of primary, localhost and all", value)
			}
			s.cidrs = append(s.cidrs, cidr)
		}
	}
	s.primary = s.primary || len(s.cidrs) == 0
	return s, nil
}

// Addrs returns those of a node's addresses that serve NodePorts in a family, sorted.
// primary is the address of that family in the Node object; the zero Addr if
// it has none. A family for which no CIDR remains is served at all addresses, as
// kube-proxy does. Loopback and link-local addresses are never among them.
func (s NodePortSelector) Addrs(f Family, all []netip.Addr, primary netip.Addr) []netip.Addr {
	cidrs := ofFamily(f, s.cidrs)
	if s.primary && primary.IsValid() && FamilyOf(primary) == f && !primary.IsLoopback() {
		cidrs = append(cidrs, netip.PrefixFrom(primary, primary.BitLen()))
	}
	var chosen []netip.Addr
	for _, a := range all {
		if FamilyOf(a) != f || !routable(a) || a.IsLinkLocalUnicast() {
			continue
		}
		if len(cidrs) == 0 || slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return c.Contains(a) }) {
			chosen = append(chosen, a)
		}
	}
	return distinct(chosen)
}

// Localhost tells whether NodePorts are asked for at the loopback address of a
// family: by the keyword or by a CIDR of loopback addresses. "all" does not ask for it.
func (s NodePortSelector) Localhost(f Family) bool {
	return slices.ContainsFunc(ofFamily(f, s.cidrs), func(c netip.Prefix) bool { return c.Addr().IsLoopback() })
}
