package agent

import (
	"errors"
	"net/netip"

	"sluice/agent/nodeaddr"
	"sluice/proxy"
	"sluice/proxy/nft"
)

// firewalls judges what chains of other programs do with packets of Services. It reads them when it first needs them, and is
// used for one question.
type firewalls struct {
	netNS  int
	routes *nodeaddr.Routes
	nft    map[proxy.Family]*nft.Firewall
}

// anyone are addresses that nobody has (RFC 5737, RFC 3849): packets to them go where the default route leads.
var anyone = map[proxy.Family]netip.Addr{proxy.IPv4: netip.AddrFrom4([4]byte{192, 0, 2, 1}), proxy.IPv6: netip.MustParseAddr("2001:db8::1")}

// judge returns what ends a packet's way.
func (f *firewalls) judge(p proxy.Passage) ([]proxy.Block, error) {
	if f.routes == nil {
		var err error
		if f.routes, err = nodeaddr.OpenRoutes(f.netNS); err != nil {
			return nil, err
		}
		f.nft = map[proxy.Family]*nft.Firewall{}
	}
	family := proxy.FamilyOf(p.Endpoint.Addr())
	fw := f.nft[family]
	if fw == nil {
		var err error
		if fw, err = nft.OpenFirewall(nft.Options{Family: family, NetNS: f.netNS}); err != nil {
			return nil, err
		}
		f.nft[family] = fw
	}
	if !p.OnNode {
		p.Out = f.routes.To(p.Endpoint.Addr())
	}
	switch from := p.From; {
	case from.Local:
	case from.Interface != "" && from.Interface != "?":
		p.In = f.routes.Named(from.Interface)
	case from.Addr.IsValid():
		p.In = f.routes.To(from.Addr)
	default:
		p.In = f.routes.To(anyone[family])
	}
	return fw.Blocks(p)
}

func (f *firewalls) close() error {
	var errs []error
	for _, fw := range f.nft {
		errs = append(errs, fw.Close())
	}
	if f.routes != nil {
		errs = append(errs, f.routes.Close())
	}
	return errors.Join(errs...)
}
