package nodeaddr

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Routes asks the kernel where packets go.
type Routes struct {
	conn *rtnetlink.Conn
	// known are the answers so far: a network's routes do not change while a question is answered.
	known map[netip.Addr]proxy.Interface
}

// OpenRoutes opens a connection, which must be closed. netNS is the file descriptor of a network namespace; 0 is the calling
// process's own.
func OpenRoutes(netNS int) (*Routes, error) {
	c, err := rtnetlink.Dial(&netlink.Config{NetNS: netNS})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return &Routes{conn: c, known: map[netip.Addr]proxy.Interface{}}, nil
}

// Close ends the connection.
func (r *Routes) Close() error { return r.conn.Close() }

// To returns the interface that leads to an address. It is zero if there is none, or if the address is this node's own.
func (r *Routes) To(a netip.Addr) proxy.Interface {
	i, known := r.known[a]
	if !known {
		i = r.ask(a)
		r.known[a] = i
	}
	return i
}

func (r *Routes) ask(a netip.Addr) (i proxy.Interface) {
	req := rtnetlink.RouteMessage{Family: unix.AF_INET, DstLength: uint8(a.BitLen()), Attributes: rtnetlink.RouteAttributes{Dst: net.IP(a.AsSlice())}}
	if a.Is6() {
		req.Family = unix.AF_INET6
	}
	routes, err := r.conn.Route.Get(&req)
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return i
	}
	link, err := r.conn.Link.Get(routes[0].Attributes.OutIface)
	if err != nil || link.Attributes == nil {
		return i
	}
	return proxy.Interface{Name: link.Attributes.Name, Index: int(link.Index)}
}

// Named returns the interface of a name. It is zero if there is none.
func (r *Routes) Named(name string) (i proxy.Interface) {
	links, err := r.conn.Link.List()
	if err != nil {
		return i
	}
	for _, l := range links {
		if l.Attributes != nil && l.Attributes.Name == name {
			return proxy.Interface{Name: name, Index: int(l.Index)}
		}
	}
	return i
}
