package proxy

import (
	"net/netip"

	netutils "k8s.io/utils/net"
)

// parseAddr reads an IP address as Kubernetes does: leading zeros in IPv4 are
// decimal (old API servers have stored such addresses), an IPv4-mapped IPv6
// address is IPv4, and there are no zones.
func parseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, _ = netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	}
	if !a.IsValid() || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// parsePrefix reads a CIDR by the same rules as parseAddr and clears its host bits.
func parsePrefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		_, cidr, err := netutils.ParseCIDRSloppy(s)
		if err != nil {
			return netip.Prefix{}, false
		}
		a, _ := netip.AddrFromSlice(cidr.IP)
		bits, _ := cidr.Mask.Size()
		p = netip.PrefixFrom(a, bits)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// broadcast is that of every network. Clients of DHCP send to it.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// routable tells whether packets can be sent to a from another host: 0.0.0.0,
// ::, loopback, multicast and broadcast addresses serve nothing.
func routable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && a != broadcast
}

// Loopback is 127.0.0.1 or ::1.
func (f Family) Loopback() netip.Addr {
	if f == IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// ofFamily returns the prefixes of one family.
func ofFamily(f Family, all []netip.Prefix) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range all {
		if FamilyOf(p.Addr()) == f {
			list = append(list, p)
		}
	}
	return list
}

// parsePrefixes returns those of the texts that are prefixes of one family.
func parsePrefixes(f Family, texts []string) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range texts {
		if p, ok := parsePrefix(s); ok {
			list = append(list, p)
		}
	}
	return ofFamily(f, list)
}
