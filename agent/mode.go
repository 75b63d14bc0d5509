package agent

import (
	"context"
	"errors"
	"time"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// chooseMode tries what the kernel has and chooses how rules are written. Where no mode can work, or
// it could not be tried, the agent goes on with what was asked for, or nftables: its writer tries again and again, and
// a module may be loaded in a moment. It returns why.
func (l *loop) chooseMode(ctx context.Context) string {
	found := probe.Run(ctx, probe.Options{Mode: l.cfg.ProxyMode})
	mode, why, err := found.Choose(l.cfg.ProxyMode)
	if err != nil {
		mode = l.cfg.ProxyMode
		if mode == proxy.ModeAuto {
			mode = proxy.ModeNFTables
		}
		l.log.Error("rules cannot be written as it is; tried again and again", "mode", mode, "error", err)
		why = err.Error()
	} else {
		l.log.Info("proxy mode", "mode", mode, "why", why)
	}
	l.mode, l.variant = mode, found.Variant()
	l.installed = found.Installed
	return why
}

// openWriter opens the writer of the mode that was chosen.
func (l *loop) openWriter(f proxy.Family, peers *nft.Peers) (proxy.Writer, error) {
	if l.mode == proxy.ModeIPTables {
		return iptables.New(iptables.Options{Family: f, Variant: l.variant, Installed: l.installed(f), Interval: l.cfg.SyncPeriod, Log: l.log})
	}
	return nft.New(nft.Options{Family: f, Peers: peers, Log: l.log})
}

// iptablesOptions say which iptables a family's rules are in, for who looks at them.
func (l *loop) iptablesOptions(p *proxier) iptables.Options {
	o := iptables.Options{Family: p.family, Variant: l.variant, Installed: l.installed(p.family)}
	if w, open := p.writer.(*iptables.Writer); open {
		o.Variant = w.Variant().Name
	}
	return o
}

// removeOther removes what an earlier agent wrote in a family in the other mode, or with the other iptables, once this one's
// rules are complete there: while both are there, the first that a connection meets sends it to an endpoint.
func (l *loop) removeOther(ctx context.Context, p *proxier) {
	select {
	case <-p.written:
	case <-ctx.Done():
		return
	}
	logged := ""
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		removed, err := l.cleanOther(ctx, p)
		if removed {
			p.log.Info("rules of an earlier --proxy-mode, or of another iptables, are removed")
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != logged {
			logged = err.Error()
			p.log.Warn("rules of an earlier --proxy-mode, or of another iptables, may be left; tried again and again", "error", err)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
	}
}

func (l *loop) cleanOther(ctx context.Context, p *proxier) (removed bool, err error) {
	opts := iptables.Options{Family: p.family, Installed: l.installed(p.family), Log: p.log}
	w, ok := p.writer.(*iptables.Writer)
	if !ok {
		return iptables.Cleanup(ctx, opts, "")
	}
	ofNFT, err := nft.Cleanup(ctx, nft.Options{Family: p.family})
	ofOther, err2 := iptables.Cleanup(ctx, opts, w.Variant().Name)
	return ofNFT || ofOther, errors.Join(err, err2)
}
