package agent

import (
	"context"
	"errors"
	"fmt"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
)

// Diff implements status.Provider.
func (l *loop) Diff(ctx context.Context) (d status.Diff, err error) {
	ended := l.do(ctx, func() {
		l.release = l.releaseTime()
		d, err = l.diff(ctx)
	})
	return d, errors.Join(ended, err)
}

func (l *loop) diff(ctx context.Context) (d status.Diff, err error) {
	if !l.planned {
		return d, &status.QuestionError{Text: "not all objects are known yet: what the kernel should have is not, either"}
	}
	for _, p := range l.proxiers {
		n := 0
		err := l.compare(ctx, p, func(one proxy.Difference) {
			if n++; n <= status.MaxDiff {
				d.Items = append(d.Items, status.FamilyDifference{Family: p.family, Difference: one})
			}
		})
		d.Count += n
		d.Waiting = d.Waiting || !p.queued.IsZero() && !l.offline
		if err != nil {
			return d, fmt.Errorf("compare %v: %w", p.family, err)
		}
	}
	return d, nil
}

// compare tells differs what a family's rules in the kernel are not as they should be.
func (l *loop) compare(ctx context.Context, p *proxier, differs func(proxy.Difference)) error {
	if l.mode == proxy.ModeIPTables {
		return iptables.Compare(ctx, l.iptablesOptions(p), p.state, differs)
	}
	return nft.Compare(ctx, nft.Options{Family: p.family}, p.state, differs)
}
