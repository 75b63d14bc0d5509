package agent

import (
	"context"

	"sluice/agent/explain"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
)

// rules are what a packet meets in a family.
func (l *loop) rules(p *proxier) explain.Rules {
	r := l.writersRules(p)
	if l.elsewhere {
		r.Live = nil
	}
	return r
}

func (l *loop) writersRules(p *proxier) explain.Rules {
	if l.mode == proxy.ModeIPTables {
		return explain.Rules{
			Planned: iptables.Planned(p.state),
			Live: func(ctx context.Context) (proxy.Tracer, func(), error) {
				t, err := iptables.Live(ctx, l.iptablesOptions(p))
				return t, func() {}, err
			},
		}
	}
	return explain.Rules{
		Planned: nft.Planned(p.state),
		Live: func(context.Context) (proxy.Tracer, func(), error) {
			t, err := nft.Live(nft.Options{Family: p.family})
			return t, func() { t.Close() }, err
		},
	}
}
