package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// BaseChain is a chain of any program that is in the packet path.
type BaseChain struct {
	// Family is nft's word for it: ip, ip6 or inet.
	Family      string
	Table, Name string
	// Type is filter, nat or route.
	Type string
	// Hook is the kernel's number (enum nf_inet_hooks).
	Hook     uint32
	Priority int32
	// Drop: what no rule of the chain decides about is dropped.
	Drop bool
}

// inetFamilies are the families whose chains see IP packets.
var inetFamilies = []struct {
	number byte
	name   string
}{{unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}, {unix.NFPROTO_INET, "inet"}}

// familyName is nft's word for a family that sees IP packets; empty for others.
func familyName(number byte) string {
	for _, f := range inetFamilies {
		if f.number == number {
			return f.name
		}
	}
	return ""
}

// BaseChains lists the base chains of all tables. Where the kernel has no nf_tables there are none.
func BaseChains(opts Options) ([]BaseChain, error) {
	c, err := dial(opts.NetNS)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.baseChains()
}

func (c *conn) baseChains() ([]BaseChain, error) {
	var all []BaseChain
	for _, f := range inetFamilies {
		var chains []BaseChain
		err := c.dump(f.number, unix.NFT_MSG_GETCHAIN, nil, func() { chains = nil }, func(attrs []byte) {
			if chain, ok := parseBaseChain(attrs); ok {
				chain.Family = f.name
				chains = append(chains, chain)
			}
		})
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the chains of family %s: %w", f.name, err)
		}
		all = append(all, chains...)
	}
	return all, nil
}

func parseBaseChain(attrs []byte) (chain BaseChain, base bool) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_CHAIN_TABLE:
			chain.Table = cString(v)
		case unix.NFTA_CHAIN_NAME:
			chain.Name = cString(v)
		case unix.NFTA_CHAIN_HOOK:
			base = true
		case unix.NFTA_CHAIN_POLICY:
			chain.Drop = be32(v) == nfDrop
		}
	})
	h := parseHook(attrs)
	chain.Type, chain.Hook, chain.Priority = h.typ, h.num, h.priority
	return chain, base
}
