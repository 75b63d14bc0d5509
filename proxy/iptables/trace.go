package iptables

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"sluice/proxy"
	"sluice/proxy/firewall"
	"sluice/proxy/netns"
)

// tracer implements proxy.Tracer for rules that are planned, or that the kernel has: from where rules in the system's chains lead
// to ours.
type tracer struct {
	family proxy.Family
	rules  rulebook
}

var _ proxy.Tracer = (*tracer)(nil)

// rulebook is where a tracer looks rules up.
type rulebook interface {
	// chain returns the lines of a chain; one that does not exist has none. of is where the packet goes at present.
	chain(t table, name string, of proxy.Frontend) []string
	// remembers tells whether a list of the match recent has an address.
	remembers(list string, a netip.Addr) bool
}

// Planned follows packets through the rules that a state asks for. No kernel is needed. The state must not change meanwhile.
func Planned(s *proxy.State) proxy.Tracer {
	p := &planned{rules: newRuleset(s.Family(), true), state: s, rendered: map[proxy.Frontend]bool{}}
	p.rules.fill(s)
	p.scratch.family = s.Family()
	for t := range tableCount {
		p.chains[t] = map[string][]string{}
	}
	for _, j := range jumps {
		p.chains[j.table][j.from] = append(p.chains[j.table][j.from], j.line())
	}
	p.rules.fixed(&p.scratch, p.keep)
	return &tracer{s.Family(), p}
}

// planned renders the chains that a packet may come to, and no others.
type planned struct {
	state   *proxy.State
	rules   *ruleset
	scratch chain
	chains  [tableCount]map[string][]string
	// rendered are the addresses and ports whose chains are among them.
	rendered map[proxy.Frontend]bool
}

func (p *planned) keep(c *chain) {
	p.chains[c.table][c.name] = nil
	if c.rules > 0 {
		p.chains[c.table][c.name] = strings.Split(strings.TrimSuffix(string(c.text), "\n"), "\n")
	}
}

func (p *planned) chain(t table, name string, of proxy.Frontend) []string {
	if !p.rendered[of] {
		p.rendered[of] = true
		p.render(of)
	}
	return p.chains[t][name]
}

// render renders what packets to an address and port may come to.
func (p *planned) render(of proxy.Frontend) {
	for i := range p.rules.tries {
		trie, key := &p.rules.tries[i], of
		if trie.addrs {
			key = proxy.Frontend{Addr: of.Addr}
		}
		trie.near(&key, func(n node) {
			trie.render(&p.scratch, n)
			p.keep(&p.scratch)
		})
	}
	if r := p.state.Route(of); r != nil {
		p.rules.routeChains(&p.scratch, of, r, p.keep)
	}
}

func (p *planned) remembers(string, netip.Addr) bool { return false }

// Live follows packets through the rules that the kernel has. Without ours no packet is touched.
func Live(ctx context.Context, o Options) (proxy.Tracer, error) {
	v, err := o.choose(ctx)
	if err != nil {
		return nil, err
	}
	w := &Writer{opts: o, log: o.logger(), variant: v}
	l := &live{netNS: o.NetNS}
	for t := range tableCount {
		l.chains[t] = map[string][]string{}
		add := func(name, line []byte) { l.chains[t][string(name)] = append(l.chains[t][string(name)], string(line)) }
		err := w.read(ctx, t, reader{rule: add, lead: func(line []byte, _ bool, behind []byte) {
			from, _, _ := bytes.Cut(line[len("-A "):], []byte(" "))
			if behind != nil && len(l.chains[t][string(from)]) == 0 {
				add(from, behind)
			}
			add(from, line)
		}})
		if err != nil {
			return nil, err
		}
	}
	return &tracer{o.Family, l}, nil
}

type live struct {
	netNS  int
	chains [tableCount]map[string][]string
}

func (l *live) chain(t table, name string, _ proxy.Frontend) []string { return l.chains[t][name] }

// remembers reads a list of xt_recent. One that came too long ago stays in it until the list is looked at again.
func (l *live) remembers(list string, a netip.Addr) (found bool) {
	_ = netns.Do(l.netNS, func() error {
		f, err := os.Open("/proc/thread-self/net/xt_recent/" + list)
		if err != nil {
			return err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			word, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "src="), " ")
			if listed, err := netip.ParseAddr(word); err == nil && listed == a {
				found = true
			}
		}
		return nil
	})
	return found
}

// Trace implements proxy.Tracer.
func (t *tracer) Trace(ctx context.Context, p proxy.Packet) ([]proxy.Outcome, error) {
	return proxy.Outcomes(ctx, func(choices *proxy.Choices) (proxy.Outcome, error) {
		m := machine{t: t, p: p, to: p.To, choices: choices}
		return m.run()
	})
}

// end says how a chain goes on.
type end uint8

const (
	goesOn   end = iota // where it was jumped from
	accepted            // by this hook's chain
	stopped             // dropped or rejected
)

// maxDepth bounds jumps: the kernel lets no chain lead back to itself.
const maxDepth = 64

// machine is the way of one packet through the chains.
type machine struct {
	t       *tracer
	p       proxy.Packet
	to      proxy.Frontend // the destination, as DNAT changed it
	nat     bool           // a DNAT changed it
	mark    uint32
	choices *proxy.Choices
	depth   int
	outcome proxy.Outcome
}

func (m *machine) run() (proxy.Outcome, error) {
	first := "PREROUTING"
	if m.p.From.Local {
		first = "OUTPUT"
	}
	if e, err := m.chain(nat, first); err != nil || e == stopped {
		return m.outcome, err
	}
	hook, leaves := "FORWARD", true
	switch {
	case m.p.From.Local:
		hook = "OUTPUT"
	case m.p.OnNode != nil && m.p.OnNode(m.to.Addr):
		hook, leaves = "INPUT", false
	}
	if e, err := m.chain(filter, hook); err != nil || e == stopped {
		return m.outcome, err
	}
	if leaves {
		if _, err := m.chain(nat, "POSTROUTING"); err != nil {
			return m.outcome, err
		}
	}
	if m.nat {
		m.outcome.Verdict, m.outcome.Endpoint = proxy.Forwarded, netip.AddrPortFrom(m.to.Addr, m.to.Port)
	}
	return m.outcome, nil
}

// chain takes the packet through a chain.
func (m *machine) chain(t table, name string) (end, error) {
	if m.depth++; m.depth > maxDepth {
		return stopped, fmt.Errorf("chain %s: more than %d jumps", name, maxDepth)
	}
	defer func() { m.depth-- }()
	for _, line := range m.t.rules.chain(t, name, m.to) {
		r, ok := parseRule(line)
		matched, err := m.matches(&r)
		if err != nil || !ok {
			return stopped, fmt.Errorf("chain %s %s cannot be followed: rule %q: %w", t, name, ruleText(line), err)
		}
		if !matched {
			continue
		}
		m.outcome.Steps = append(m.outcome.Steps, proxy.Step{Where: familyTable(m.t.family, t, name), Rule: ruleText(line)})
		led := len(m.outcome.Steps)
		e, err := m.target(t, &r)
		if err != nil {
			return stopped, err
		}
		if e != goesOn || r.target == "RETURN" || r.goes {
			return e, nil
		}
		if strings.HasPrefix(r.target, prefix) && len(m.outcome.Steps) == led {
			m.outcome.Steps = m.outcome.Steps[:led-1] // nothing there was about the packet
		}
	}
	return goesOn, nil
}

// target does what a rule that matched says.
func (m *machine) target(t table, r *parsedRule) (end, error) {
	arg := func(name string) string {
		for i := range r.targetOptions {
			if r.targetOptions[i].name == name {
				return r.targetOptions[i].arg()
			}
		}
		return ""
	}
	switch r.target {
	case "", "RETURN":
		return goesOn, nil
	case "ACCEPT":
		return accepted, nil
	case "DROP":
		m.outcome.Verdict = proxy.Dropped
		return stopped, nil
	case "REJECT":
		m.outcome.Verdict = proxy.Rejected
		return stopped, nil
	case "MARK":
		value, mask, err := parseMark(arg("--set-xmark"))
		m.mark = m.mark&^mask ^ value
		return goesOn, err
	case "DNAT":
		e, err := netip.ParseAddrPort(arg("--to-destination"))
		m.to.Addr, m.to.Port, m.nat = e.Addr(), e.Port(), true
		return accepted, err
	case "MASQUERADE":
		m.outcome.Masquerade = true
		return accepted, nil
	}
	if !strings.HasPrefix(r.target, prefix) {
		return stopped, fmt.Errorf("chain %s %s cannot be followed: %s is no target of sluice's rules", t, r.chain, r.target)
	}
	return m.chain(t, r.target)
}

// matches tells whether the packet meets all conditions of a rule. What is not known of it is like nothing else.
func (m *machine) matches(r *parsedRule) (bool, error) {
	j := judge{marks: &marks{packet: m.mark}, p: &proxy.Passage{
		From: m.p.From, To: m.p.To, Endpoint: netip.AddrPortFrom(m.to.Addr, m.to.Port), OnNode: m.p.OnNode != nil && m.p.OnNode(m.to.Addr),
	}}
	if name := m.p.From.Interface; name != "?" {
		j.p.In.Name = name
	}
	module := ""
	for i := range r.options {
		o := &r.options[i]
		if o.name == "-m" {
			module = o.arg()
			continue
		}
		matched := firewall.Maybe
		switch {
		case module == "statistic":
			matched = m.chance(o)
		case module == "recent":
			matched = m.recent(r, o)
		case module == "conntrack" && o.arg() == "DNAT":
			matched = firewall.Judged(m.nat)
		case o.name == "-s" && !m.p.From.Addr.IsValid(), o.name == "-i" && j.p.In.Name == "":
			matched = firewall.No
		default:
			matched = j.option(module, o)
		}
		if o.negated {
			matched = matched.Not()
		}
		switch matched {
		case firewall.No:
			return false, nil
		case firewall.Maybe:
			return false, fmt.Errorf("%s %s is none that sluice writes", o.name, o.arg())
		}
	}
	return true, nil
}

// chance draws what the match statistic does.
func (m *machine) chance(o *option) firewall.Ternary {
	switch {
	case o.name == "--mode" && o.arg() == "random":
		return firewall.Yes
	case o.name == "--probability":
		return firewall.Judged(m.choices.Draw(2) == 0)
	}
	return firewall.Maybe
}

// recent looks into the lists of the match recent. --set notes the client, and lets every packet through.
func (m *machine) recent(r *parsedRule, o *option) firewall.Ternary {
	switch o.name {
	case "--set", "--seconds", "--reap", "--mask", "--rsource", "--name":
		return firewall.Yes
	case "--update":
		list := ""
		for i := range r.options {
			if r.options[i].name == "--name" {
				list = r.options[i].arg()
			}
		}
		known := m.p.From.Addr.IsValid() && m.t.rules.remembers(list, m.p.From.Addr)
		m.outcome.Affinity = m.outcome.Affinity || known
		return firewall.Judged(known)
	}
	return firewall.Maybe
}
