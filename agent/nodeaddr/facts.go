package nodeaddr

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Address is one address of an interface.
type Address struct {
	Interface string
	Addr      netip.Addr
}

// Facts are what is known of the node's addresses at one time.
type Facts struct {
	// Addrs are the addresses at which the node can be reached, sorted. Loopback,
	// link-local and multicast addresses are not among them, nor are those of an interface
	// that is down, those that wait for duplicate address detection and those that failed
	// it. The addresses of bridges and of pods' interfaces are.
	Addrs []Address
	// Primaries hold the one address of each family that stands for the node. A family
	// without a suitable address is missing.
	Primaries map[proxy.Family]netip.Addr
}

// All returns the addresses of both families, sorted and each once.
func (f *Facts) All() []netip.Addr {
	all := make([]netip.Addr, len(f.Addrs))
	for i, a := range f.Addrs {
		all[i] = a.Addr
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// Primary returns the address that stands for the node in a family: the source
// address of its default route, as the route names it or else the first address
// of the route's interface; without a default route, the first address of an
// interface that is neither a bridge nor a veth. The zero Addr if there is none.
func (f *Facts) Primary(family proxy.Family) netip.Addr { return f.Primaries[family] }

// Equal tells whether two Facts say the same.
func (f *Facts) Equal(g *Facts) bool {
	return slices.Equal(f.Addrs, g.Addrs) && maps.Equal(f.Primaries, g.Primaries)
}

// link is one interface.
type link struct {
	name     string
	up       bool
	loopback bool
	virtual  bool // a bridge or a veth, as CNI plugins make them
}

// address is one address of an interface that is up, in the kernel's order.
type address struct {
	Address
	prefix netip.Prefix
	link   link
	index  uint32
	// lasting addresses are fit to stand for the node: neither a temporary IPv6
	// address (RFC 8981) nor one that is deprecated (RFC 4862, preferred lifetime over).
	lasting bool
}

// route is one way out of a default route.
type route struct {
	family  proxy.Family
	metric  uint32
	index   uint32
	source  netip.Addr // invalid if the route names none
	gateway netip.Addr // invalid if there is none
}

// newFacts says what follows from what the kernel has.
func newFacts(addrs []address, routes []route) Facts {
	facts := Facts{Primaries: map[proxy.Family]netip.Addr{}}
	for _, a := range addrs {
		facts.Addrs = append(facts.Addrs, a.Address)
	}
	slices.SortFunc(facts.Addrs, func(a, b Address) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Addr.Compare(b.Addr))
	})
	for _, f := range proxy.Families {
		if a := primary(f, addrs, routes); a.IsValid() {
			facts.Primaries[f] = a
		}
	}
	return facts
}

func primary(f proxy.Family, addrs []address, routes []route) netip.Addr {
	var candidates []address
	for _, a := range addrs {
		if proxy.FamilyOf(a.Addr) == f && a.lasting {
			candidates = append(candidates, a)
		}
	}
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(a, b route) int { return cmp.Compare(a.metric, b.metric) })
	for _, r := range routes {
		if r.family != f {
			continue
		}
		if a := source(r, candidates); a.IsValid() {
			return a
		}
	}
	for _, a := range candidates {
		if !a.link.virtual && !a.link.loopback {
			return a.Addr
		}
	}
	return netip.Addr{}
}

// source returns the address that packets of a route leave with: of several on its
// interface the kernel prefers the one in the gateway's subnet.
func source(r route, candidates []address) netip.Addr {
	var first netip.Addr
	for _, a := range candidates {
		switch {
		case r.source.IsValid():
			if a.Addr == r.source {
				return a.Addr
			}
		case a.index != r.index:
		case a.prefix.Contains(r.gateway):
			return a.Addr
		case !first.IsValid():
			first = a.Addr
		}
	}
	return first
}

func linkOf(m *rtnetlink.LinkMessage) (link, bool) {
	if m.Attributes == nil {
		return link{}, false
	}
	l := link{
		name:     m.Attributes.Name,
		up:       m.Flags&unix.IFF_UP != 0,
		loopback: m.Flags&unix.IFF_LOOPBACK != 0,
	}
	if info := m.Attributes.Info; info != nil {
		l.virtual = info.Kind == "bridge" || info.Kind == "veth"
	}
	return l, true
}

// addressOf returns an address at which the node can be reached; false if it cannot.
func addressOf(m *rtnetlink.AddressMessage, links map[uint32]link) (address, bool) {
	l, known := links[m.Index]
	if m.Attributes == nil || !known || !l.up {
		return address{}, false
	}
	// On a point-to-point link the address attribute is the peer's, and the local one our own.
	ip, ok := netip.AddrFromSlice(m.Attributes.Local)
	if !ok {
		ip, ok = netip.AddrFromSlice(m.Attributes.Address)
	}
	if !ok || !ip.IsGlobalUnicast() {
		return address{}, false
	}
	flags := m.Attributes.Flags
	tentative := flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0
	if tentative || flags&unix.IFA_F_DADFAILED != 0 {
		return address{}, false
	}
	// The flag that marks temporary IPv6 addresses marks secondary ones in IPv4.
	temporary := ip.Is6() && flags&unix.IFA_F_TEMPORARY != 0
	return address{
		Address: Address{Interface: l.name, Addr: ip},
		prefix:  netip.PrefixFrom(ip, int(m.PrefixLength)).Masked(),
		link:    l,
		index:   m.Index,
		lasting: !temporary && flags&unix.IFA_F_DEPRECATED == 0,
	}, true
}

// routesOf returns the ways out of a default route of the main table; none for another route.
func routesOf(m *rtnetlink.RouteMessage) []route {
	if m.DstLength != 0 || m.Table != unix.RT_TABLE_MAIN || m.Type != unix.RTN_UNICAST {
		return nil
	}
	r := route{metric: m.Attributes.Priority, index: m.Attributes.OutIface, family: proxy.IPv4}
	if m.Family == unix.AF_INET6 {
		r.family = proxy.IPv6
	}
	r.source, _ = netip.AddrFromSlice(m.Attributes.Src)
	r.gateway, _ = netip.AddrFromSlice(m.Attributes.Gateway)
	if len(m.Attributes.Multipath) == 0 {
		return []route{r}
	}
	var all []route
	for _, hop := range m.Attributes.Multipath {
		r.index = hop.Hop.IfIndex
		r.gateway, _ = netip.AddrFromSlice(hop.Gateway)
		all = append(all, r)
	}
	return all
}
