package agent

import (
	"context"
	"errors"
	"net/netip"

	"sluice/agent/nodeaddr"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
)

// firewalls judges what chains of other programs do with packets of Services. It reads them when it first needs them, and is
// used for one question.
type firewalls struct {
	netNS     int
	installed func(proxy.Family) []iptables.Variant // nil: it is not known which are
	routes    *nodeaddr.Routes
	families  map[proxy.Family]*familyFirewall
}

// familyFirewall are the rules of one family.
type familyFirewall struct {
	iptables *iptables.Firewall
	nft      *nft.Firewall
}

// anyone are addresses that nobody has (RFC 5737, RFC 3849): packets to them go where the default route leads.
var anyone = map[proxy.Family]netip.Addr{proxy.IPv4: netip.AddrFrom4([4]byte{192, 0, 2, 1}), proxy.IPv6: netip.MustParseAddr("2001:db8::1")}

// judge returns what ends a packet's way.
func (f *firewalls) judge(ctx context.Context, p proxy.Passage) ([]proxy.Block, error) {
	if f.routes == nil {
		var err error
		if f.routes, err = nodeaddr.OpenRoutes(f.netNS); err != nil {
			return nil, err
		}
		f.families = map[proxy.Family]*familyFirewall{}
	}
	family := proxy.FamilyOf(p.Endpoint.Addr())
	fw := f.families[family]
	if fw == nil {
		var err error
		if fw, err = f.open(ctx, family); err != nil {
			return nil, err
		}
		f.families[family] = fw
	}
	if !p.OnNode {
		p.Out = f.routes.To(p.Endpoint.Addr())
	} else if p.From.Local {
		p.Out = f.routes.Named("lo")
	}
	switch from := p.From; {
	case from.Local:
		p.Toward = f.routes.To(p.To.Addr)
	case from.Interface != "" && from.Interface != "?":
		p.In = f.routes.Named(from.Interface)
	case from.Addr.IsValid():
		p.In = f.routes.To(from.Addr)
	default:
		p.In = f.routes.To(anyone[family])
	}
	if blocks := fw.iptables.Blocks(p); len(blocks) > 0 {
		return blocks, nil
	}
	return fw.nft.Blocks(p)
}

func (f *firewalls) open(ctx context.Context, family proxy.Family) (fw *familyFirewall, err error) {
	o := iptables.Options{Family: family, NetNS: f.netNS}
	if f.installed != nil {
		o.Installed = f.installed(family)
	}
	fw = &familyFirewall{}
	var all bool
	if fw.iptables, all, err = iptables.ReadFirewall(ctx, o); err != nil {
		return nil, err
	}
	fw.nft, err = nft.OpenFirewall(nft.Options{Family: family, NetNS: f.netNS}, !all)
	return fw, err
}

func (f *firewalls) close() error {
	var errs []error
	for _, fw := range f.families {
		errs = append(errs, fw.nft.Close())
	}
	if f.routes != nil {
		errs = append(errs, f.routes.Close())
	}
	return errors.Join(errs...)
}
