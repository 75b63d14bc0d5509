package explain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/agent/status"
	"sluice/proxy"
)

// Rules are the rules of one family, to be followed.
type Rules struct {
	// Planned are those that the state asks for.
	Planned proxy.Tracer
	// Live opens those that the kernel has; it is nil where there is no kernel to be asked.
	Live func(context.Context) (live proxy.Tracer, close func(), err error)
}

// follow adds the rules that do it to a path: those that are planned, or with live those that the kernel has, and where the two differ.
func (v *View) follow(ctx context.Context, p *status.Path, packet proxy.Packet, live bool) error {
	switch {
	case live && v.Rules.Live == nil:
		return &status.QuestionError{Text: "there is no kernel to ask: --live needs root, on the node itself"}
	case v.Rules.Planned == nil:
		return nil
	}
	planned, err := v.Rules.Planned.Trace(ctx, packet)
	if err != nil {
		return fmt.Errorf("follow the planned rules: %w", err)
	}
	p.Rules = rulesOf(planned)
	remembers := p.Affinity != "" && packet.From.Addr.IsValid() && v.Rules.Live != nil
	if !live && !remembers {
		return nil
	}
	actual, err := v.live(ctx, packet)
	if live {
		p.Kernel = &status.KernelPath{Differs: []string{}}
		if err != nil {
			p.Kernel.Differs = []string{fmt.Sprintf("its rules cannot be followed: %v", err)}
			return nil
		}
		p.Rules = rulesOf(actual)
		p.Kernel.Differs = append(p.Kernel.Differs, differences(planned, actual)...)
	}
	for _, o := range actual {
		if o.Affinity {
			p.Remembered = o.Endpoint
		}
	}
	return nil
}

func (v *View) live(ctx context.Context, packet proxy.Packet) ([]proxy.Outcome, error) {
	t, closeTracer, err := v.Rules.Live(ctx)
	if err != nil {
		return nil, err
	}
	defer closeTracer()
	return t.Trace(ctx, packet)
}

// ruleNode is a rule in the order of those of all outcomes.
type ruleNode struct {
	status.PathRule
	next *ruleNode
	// alike is the last one in a row of the same chain, as far as the first of them knows it.
	alike *ruleNode
}

// rulesOf lists the steps of all outcomes, in the order in which a packet meets them.
func rulesOf(outcomes []proxy.Outcome) (all []status.PathRule) {
	var first ruleNode
	at := map[proxy.Step]*ruleNode{}
	for _, o := range outcomes {
		last := &first
		for _, step := range o.Steps {
			n := at[step]
			if n == nil { // behind the one before it, and behind those like it of other outcomes
				n = &ruleNode{PathRule: status.PathRule{Step: step}}
				at[step] = n
				behind := last
				if head := last.next; head != nil && head.Where == step.Where {
					behind = head
					if head.alike != nil {
						behind = head.alike
					}
					head.alike = n
				}
				n.next, behind.next = behind.next, n
			}
			if o.Verdict == proxy.Forwarded {
				n.To = append(n.To, o.Endpoint)
			}
			last = n
		}
	}
	for n := first.next; n != nil; n = n.next {
		if len(n.To) == len(outcomes) {
			n.To = nil
		}
		all = append(all, n.PathRule)
	}
	return all
}

// differences says where the kernel's rules lead elsewhere than the planned ones.
func differences(planned, actual []proxy.Outcome) (differs []string) {
	if was, is := verdicts(planned), verdicts(actual); was != is {
		return []string{fmt.Sprintf("the packet is %s, and should be %s", is, was)}
	}
	want, have := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	remembered := false
	for _, o := range planned {
		want[o.Endpoint] = o.Masquerade
	}
	for _, o := range actual {
		have[o.Endpoint] = o.Masquerade
		remembered = remembered || o.Affinity
	}
	for e, masquerade := range have {
		switch should, there := want[e]; {
		case !there:
			differs = append(differs, fmt.Sprintf("some connections go to %v, which is none of the endpoints", e))
		case masquerade && !should:
			differs = append(differs, fmt.Sprintf("the source is replaced on the way to %v, and should be kept", e))
		case should && !masquerade:
			differs = append(differs, fmt.Sprintf("the source is kept on the way to %v, and should be replaced", e))
		}
	}
	if !remembered && len(planned) < proxy.MaxOutcomes {
		for e := range want {
			if _, there := have[e]; !there {
				differs = append(differs, fmt.Sprintf("no connection goes to %v", e))
			}
		}
	}
	slices.Sort(differs)
	return differs
}

// verdicts are those of all outcomes.
func verdicts(outcomes []proxy.Outcome) string {
	var words []string
	for _, o := range outcomes {
		if !slices.Contains(words, o.Verdict.String()) {
			words = append(words, o.Verdict.String())
		}
	}
	slices.Sort(words)
	return strings.Join(words, " or ")
}
