package check

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"sluice/agent/kube"
)

// cluster looks at where objects come from.
func (l *looker) cluster() []Item {
	if l.manifests != nil {
		return judgeManifests(l.manifests)
	}
	name := l.Config.NodeName
	if name == "" {
		name, _, _ = kube.NodeName(l.Config.Kubeconfig)
	}
	ctx, cancel := context.WithTimeout(l.ctx, apiTime)
	defer cancel()
	a, err := kube.Check(ctx, l.Config.Kubeconfig, name)
	return judgeAccess(a, err, l.Now)
}

// soon is how long before its end a client certificate is worth a warning. k3s renews its own
// at a restart, 120 days before the end at most, and warns from 90 days on.
const soon = 30 * 24 * time.Hour

// judgeAccess is about the API server and what its user may read.
func judgeAccess(a kube.Access, err error, now time.Time) []Item {
	const name = "kubeconfig"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []Item{unseen(name, err)}
	case errors.Is(err, fs.ErrNotExist) && a.Kubeconfig == "":
		return []Item{fail(name, "start k3s, which writes one, or set --kubeconfig, or --manifests for a node without a cluster", "there is %v", err)}
	case errors.Is(err, fs.ErrNotExist):
		return []Item{fail(name, "set --kubeconfig to one that is there; without it k3s's own is found", "%v", err)}
	case err != nil:
		return []Item{fail(name, "correct the file, or set --kubeconfig", "%v", err)}
	}
	items := []Item{ok(name, "%s", a.Kubeconfig)}
	if !a.NotAfter.IsZero() {
		const remedy = "renew it, with k3s by restarting it"
		left := a.NotAfter.Sub(now)
		date := a.NotAfter.UTC().Format(time.DateOnly)
		switch {
		case left <= 0:
			items = append(items, fail("client certificate", remedy+"; or correct the clock", "it ended on %s", date))
		case left < soon:
			items = append(items, warn("client certificate", remedy, "it ends on %s", date))
		default:
			items = append(items, ok("client certificate", "until %s", date))
		}
	}
	for _, p := range a.Problems {
		detail, remedy := split(p)
		items = append(items, fail("API server", remedy, "%s", detail))
	}
	for _, p := range a.Lesser {
		detail, remedy := split(p)
		items = append(items, warn("API server", remedy, "%s", detail))
	}
	if len(a.Allowed) > 0 {
		items = append(items, ok("API server", "%s gives %s", a.Server, strings.Join(a.Allowed, ", ")))
	}
	return items
}

// split takes the remedy from the end of a fault's reason.
func split(reason string) (detail, remedy string) {
	if i := strings.LastIndex(reason, "; "); i > 0 {
		return reason[:i], reason[i+2:]
	}
	return reason, "none is needed"
}
