package agent

import (
	"context"
	"errors"
	"fmt"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
)

// comparer compares what the kernel has of a family with what it should have.
type comparer interface {
	Compare(ctx context.Context, s *proxy.State, differs func(proxy.Difference)) error
}

// comparer is that of the mode which rules are written in.
func (l *loop) comparer(f proxy.Family) (comparer, error) {
	if l.mode == proxy.ModeIPTables {
		return nil, &status.QuestionError{Text: "diff compares nftables rules only, and this agent writes iptables rules"}
	}
	return nft.NewInspector(nft.Options{Family: f}), nil
}

// Diff implements status.Provider.
func (l *loop) Diff(ctx context.Context) (d status.Diff, err error) {
	ended := l.do(ctx, func() { d, err = l.diff(ctx) })
	return d, errors.Join(ended, err)
}

func (l *loop) diff(ctx context.Context) (d status.Diff, err error) {
	if !l.planned {
		return d, &status.QuestionError{Text: "not all objects are known yet: what the kernel should have is not, either"}
	}
	for _, p := range l.proxiers {
		c, err := l.comparer(p.family)
		if err != nil {
			return d, err
		}
		n := 0
		err = c.Compare(ctx, p.state, func(one proxy.Difference) {
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
