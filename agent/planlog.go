package agent

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice/agent/kube"
	"sluice/agent/source"
	"sluice/proxy"
)

// maxNamed is how many things of one kind a line of the log names of a Service. It can have tens of
// thousands of ports.
const maxNamed = 3

// Reasons of the events that Services have, beside what the log says.
const (
	reasonNotServed = "NotServed"
	reasonConflict  = "AddressConflict"
	// reasonHealthCheck is kube-proxy's.
	reasonHealthCheck = "FailedToStartServiceHealthcheck"
)

// logConflicts says which conflicts began and ended, in one line for each Service that lost or got something.
func (l *loop) logConflicts() {
	for _, p := range l.proxiers {
		begun, ended := p.state.ConflictChanges()
		for _, lost := range byLoser(begun) {
			what := naming(lost.what)
			p.log.Warn("two Services claim one address; the older one has it, or whose ClusterIP it is", "conflict", what)
			l.warnNamed(lost.name, reasonConflict, what)
		}
		for _, lost := range byLoser(ended) {
			p.log.Info("conflict ended", "conflict", naming(lost.what))
		}
	}
}

// lost is what a Service does not have, as another has it.
type lost struct {
	name proxy.ServiceName
	what []string
}

// byLoser groups conflicts by the Service that does not have the address, in their order.
func byLoser(conflicts []proxy.Conflict) (groups []lost) {
	index := map[proxy.ServiceName]int{}
	for _, c := range conflicts {
		i, known := index[c.Loser.ServiceName]
		if !known {
			i = len(groups)
			index[c.Loser.ServiceName], groups = i, append(groups, lost{name: c.Loser.ServiceName})
		}
		groups[i].what = append(groups[i].what, c.String())
	}
	return groups
}

// maxNote is how long an event's note may be, in bytes (NoteLengthLimit of the API server's validation).
const maxNote = 1024

// warn posts an event about a Service, so that who made it sees it by kubectl describe. Source and server say how many there can be.
func (l *loop) warn(svc *corev1.Service, reason, note string) {
	if s, ok := l.source.(*kube.Source); ok && svc != nil {
		s.Post(kube.Event{
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID},
			Type:      corev1.EventTypeWarning, Reason: reason, Action: "Plan", Note: strings.ToValidUTF8(note[:min(len(note), maxNote)], ""),
		})
	}
}

// warnNamed does so of a Service that is read from the cache for it, where there is anybody to tell.
func (l *loop) warnNamed(name proxy.ServiceName, reason, note string) {
	if _, ok := l.source.(*kube.Source); ok {
		l.warn(l.read(source.Name(name)).svc, reason, note)
	}
}

// logIgnored says once what is not served of a Service, in one line.
func (l *loop) logIgnored(p *proxier, svc *corev1.Service, plan *proxy.ServicePlan) {
	if plan == nil || len(plan.Ignored) == 0 {
		return
	}
	before := map[string]struct{}{}
	if old := p.state.Plan(plan.Name); old != nil {
		for _, what := range old.Ignored {
			before[what] = struct{}{}
		}
	}
	var fresh []string
	for _, what := range plan.Ignored {
		if _, known := before[what]; !known {
			fresh = append(fresh, what)
		}
	}
	if len(fresh) > 0 {
		p.log.Warn("part of a Service is not served", "service", plan.Name.String(), "reason", naming(fresh))
		l.warn(svc, reasonNotServed, naming(fresh))
	}
}

// naming names the first few, and says how many more there are.
func naming(what []string) string {
	if more := len(what) - maxNamed; more > 0 {
		return fmt.Sprintf("%s; and %d more, see sluice status", strings.Join(what[:maxNamed], "; "), more)
	}
	return strings.Join(what, "; ")
}
