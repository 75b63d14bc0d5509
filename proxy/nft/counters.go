package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Counter is what the kernel counted at one frontend.
type Counter struct {
	Frontend proxy.Frontend
	// ServicePort is the comment of the frontend's element: proxy.ServicePortName.String, cut off
	// behind 127 bytes, which namespace and name never exceed. It is valid during the call only.
	ServicePort []byte
	// Packets counts new connections, for nat chains see the first packet of each. When the
	// frontend's number of endpoints changes, or its affinity, those of some microseconds before are missing. It begins at 0
	// again after a time without endpoints.
	Packets uint64
	// Bytes counts the bytes of these packets.
	Bytes uint64
}

// counterAttempts bounds how often a dump that the kernel broke off is begun anew.
const counterAttempts = 5

// ReadCounters calls fn for every frontend that has endpoints, one after the other as the
// kernel hands them over; nothing is kept. It has a connection of its own, so that it can run
// beside a Writer. While changes are written a frontend may be told of twice, or be
// missing this once. It waits for nothing. Without a table there are no frontends.
func ReadCounters(opts Options, fn func(Counter)) error {
	c, err := dial(opts.NetNS)
	if err != nil {
		return err
	}
	defer c.Close()
	set := setDefs(opts.Family)[serviceIPs]
	each := func(e []byte) {
		if counter, ok := parseCounter(e); ok {
			fn(counter)
		}
	}
	for range counterAttempts {
		again, err := c.dumpOnce(nfproto(opts.Family), unix.NFT_MSG_GETSETELEM, set.inTable(TableName), func(attrs []byte) { eachElement(attrs, each) })
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return fmt.Errorf("read the counters of set %s of table %s (%v): %w", set.name, TableName, opts.Family, err)
		case !again:
			return nil
		}
	}
	return nil // changed all the time: what the last attempt told is near enough
}

func parseCounter(e []byte) (c Counter, ok bool) {
	var k elemKey
	eachAttr(e, func(typ uint16, a []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			eachAttr(a, func(_ uint16, b []byte) { k.n = uint8(copy(k.b[:], b)) })
		case unix.NFTA_SET_ELEM_USERDATA:
			c.ServicePort = commentBytes(a)
		case unix.NFTA_SET_ELEM_EXPR:
			eachAttr(a, func(typ uint16, a []byte) {
				if typ != unix.NFTA_EXPR_DATA {
					return
				}
				eachAttr(a, func(typ uint16, n []byte) {
					switch {
					case len(n) != 8:
					case typ == unix.NFTA_COUNTER_PACKETS:
						c.Packets, ok = binary.BigEndian.Uint64(n), true
					case typ == unix.NFTA_COUNTER_BYTES:
						c.Bytes = binary.BigEndian.Uint64(n)
					}
				})
			})
		}
	})
	if k.n == 0 {
		return c, false
	}
	c.Frontend, _ = parseFrontend(&k)
	return c, ok && c.Frontend.Addr.IsValid()
}
