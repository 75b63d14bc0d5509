package agent

import (
	"fmt"
	"strings"

	"sluice/proxy"
)

// maxNamed is how many things of one kind a line of the log names of a Service. It can have tens of
// thousands of ports.
const maxNamed = 3

// logConflicts says which conflicts began and ended, in one line for each Service that lost or got something.
func (l *loop) logConflicts() {
	for _, p := range l.proxiers {
		begun, ended := p.state.ConflictChanges()
		for _, what := range byLoser(begun) {
			p.log.Warn("two Services claim one address; the older one has it", "conflict", naming(what))
		}
		for _, what := range byLoser(ended) {
			p.log.Info("conflict ended", "conflict", naming(what))
		}
	}
}

// byLoser groups conflicts by the Service that does not have the address, in their order.
func byLoser(conflicts []proxy.Conflict) (groups [][]string) {
	index := map[proxy.ServiceName]int{}
	for _, c := range conflicts {
		i, known := index[c.Loser.ServiceName]
		if !known {
			i = len(groups)
			index[c.Loser.ServiceName], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c.String())
	}
	return groups
}

// logIgnored says once what is not served of a Service, in one line.
func (l *loop) logIgnored(p *proxier, plan *proxy.ServicePlan) {
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
	}
}

// naming names the first few, and says how many more there are.
func naming(what []string) string {
	if more := len(what) - maxNamed; more > 0 {
		return fmt.Sprintf("%s; and %d more, see sluice status", strings.Join(what[:maxNamed], "; "), more)
	}
	return strings.Join(what, "; ")
}
