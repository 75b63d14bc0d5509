package agent

import (
	"context"
	"errors"
	"fmt"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
)

// Diff implements status.Provider.
func (l *loop) Diff(ctx context.Context) (d status.Diff, err error) {
	ended := l.do(ctx, func() { d, err = l.diff(ctx) })
	return d, errors.Join(ended, err)
}

func (l *loop) diff(ctx context.Context) (d status.Diff, err error) {
	switch {
	case !l.planned:
		return d, &status.QuestionError{Text: "not all objects are known yet: what the kernel should have is not, either"}
	case l.mode == proxy.ModeIPTables:
		return d, &status.QuestionError{Text: "diff compares nftables rules only, and this agent writes iptables rules"}
	}
	for _, p := range l.proxiers {
		n := 0
		err := nft.Compare(ctx, nft.Options{Family: p.family}, p.state, func(one proxy.Difference) {
			if n++; n <= status.MaxDiff {
				d.Items = append(d.Items, status.FamilyDifference{Family: p.family, Difference: one})
			}
		})
		d.Count += n
		d.Waiting = d.Waiting || !p.queued.IsZero()
		if err != nil {
			return d, fmt.Errorf("compare %v: %w", p.family, err)
		}
	}
	return d, nil
}
