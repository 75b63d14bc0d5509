package agent

import (
	"context"
	"time"

	"sluice/agent/config"
	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// chooseMode tries what the kernel has and chooses how rules are written.
func (l *loop) chooseMode(ctx context.Context) error {
	found := probe.Run(ctx, probe.Options{Mode: l.cfg.ProxyMode})
	mode, why, err := found.Choose(l.cfg.ProxyMode)
	if err != nil {
		return err
	}
	l.mode, l.variant = mode, found.Variant()
	l.log.Info("proxy mode", "mode", mode, "why", why)
	return nil
}

// openWriter opens the writer of the mode that was chosen.
func (l *loop) openWriter(f proxy.Family, peers *nft.Peers) (proxy.Writer, error) {
	if l.mode == config.ModeIPTables {
		return iptables.New(iptables.Options{Family: f, Variant: l.variant, Interval: l.cfg.SyncPeriod, Log: l.log})
	}
	return nft.New(nft.Options{Family: f, Peers: peers, Log: l.log})
}

// removeOther removes what an earlier agent wrote in the other mode, once this mode's rules are complete: while both
// are there, the first that a connection meets sends it to an endpoint.
func (l *loop) removeOther(ctx context.Context) {
	select {
	case <-l.written:
	case <-ctx.Done():
		return
	}
	for _, p := range l.proxiers {
		for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
			err := l.cleanOther(ctx, p.family)
			if err == nil {
				break
			}
			p.log.Warn("rules of an earlier --proxy-mode may be left", "error", err, "retry", delay)
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *loop) cleanOther(ctx context.Context, f proxy.Family) error {
	if l.mode == config.ModeIPTables {
		return nft.Cleanup(ctx, nft.Options{Family: f})
	}
	return iptables.Cleanup(ctx, iptables.Options{Family: f, Log: l.log})
}
