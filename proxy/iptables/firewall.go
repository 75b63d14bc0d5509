package iptables

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// Firewall judges what rules of other programs do with packets, before the DNAT and behind it: those that iptables-save lists in the
// tables raw, mangle and filter. It never changes one.
type Firewall struct {
	family proxy.Family
	// tables are those of all variants, in the order in which a packet meets them.
	tables []*firewallTable
}

type firewallTable struct {
	variant string
	name    string
	rules   map[string][]firewallRule
	drops   map[string]bool // chains whose policy it is
}

type firewallRule struct {
	parsedRule
	line string
}

// ReadFirewall reads the rules of all variants that are installed. all is false if iptables-nft is not, or could not list a
// table, so that there may be more.
func ReadFirewall(ctx context.Context, o Options) (f *Firewall, all bool, err error) {
	f = &Firewall{family: o.Family}
	variants, err := Variants(ctx, o)
	if errors.Is(err, ErrNoIPTables) {
		return f, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, v := range variants {
		complete, err := f.read(ctx, o.NetNS, v)
		if err != nil {
			return nil, false, err
		}
		all = all || v.Name == NFT && complete
	}
	slices.SortStableFunc(f.tables, func(a, b *firewallTable) int { return strings.Compare(b.name, a.name) }) // raw is before mangle, and that before filter
	return f, all, nil
}

func (f *Firewall) read(ctx context.Context, ns int, v Variant) (complete bool, err error) {
	var t *firewallTable
	err = v.List(ctx, ns, "", Listing{
		Table: func(name string) {
			if t = nil; slices.Contains([]string{"raw", "mangle", "filter"}, name) {
				t = &firewallTable{v.Name, name, map[string][]firewallRule{}, map[string]bool{}}
				f.tables = append(f.tables, t)
			}
		},
		Chain: func(name, policy []byte) {
			if t != nil && string(policy) == "DROP" {
				t.drops[string(name)] = true
			}
		},
		Rule: func(_, line []byte) {
			if t == nil {
				return
			}
			if r, ok := parseRule(string(line)); ok && !strings.HasPrefix(r.chain, prefix) && !strings.HasPrefix(r.target, prefix) {
				t.rules[r.chain] = append(t.rules[r.chain], firewallRule{r, string(line)})
			}
		},
	})
	if _, left := errors.AsType[*IncompatibleError](err); left {
		return false, nil
	}
	return err == nil, err
}

// Blocks returns what ends a packet's way, in the order in which it comes there.
func (f *Firewall) Blocks(p proxy.Passage) []proxy.Block {
	hooks := []string{"PREROUTING", "FORWARD", "POSTROUTING"}
	switch {
	case p.From.Local && p.OnNode: // it comes in again, through the loopback interface
		hooks = []string{"OUTPUT", "POSTROUTING", "PREROUTING", "INPUT"}
	case p.From.Local:
		hooks = []string{"OUTPUT", "POSTROUTING"}
	case p.OnNode:
		hooks = []string{"PREROUTING", "INPUT"}
	}
	marks := marks{packet: p.Mark}
	var blocks []proxy.Block
	for _, hook := range hooks {
		for _, t := range f.tables {
			at := p.At(map[string]proxy.Place{"INPUT": proxy.Arriving, "OUTPUT": proxy.Sending}[hook])
			again := p.From.Local && (hook == "PREROUTING" || hook == "INPUT") // all has been done to it
			early := hook == "PREROUTING" && !again || hook == "OUTPUT" && t.name != "filter"
			switch {
			case early:
				at = at.BeforeDNAT()
			case again:
				at = p.At(proxy.Arriving)
				at.From.Addr = netip.Addr{} // it may be replaced
			}
			found, _ := firewall.Judge(&judge{table: t, p: &at, untracked: t.name == "raw" && !again, early: early, marks: &marks}, firewall.Base{Table: t.variant + " " + t.name, Chain: hook, Drops: t.drops[hook]})
			blocks = append(blocks, found...)
			if firewall.Sure(found) {
				return blocks
			}
		}
	}
	return blocks
}

// judge is one packet in the rules of one table. It implements firewall.Table.
type judge struct {
	table *firewallTable
	p     *proxy.Passage
	// untracked: connection tracking has not seen the packet yet. early: it is not yet sent on to the endpoint.
	untracked, early bool
	marks            *marks
}

// marks are those that rules of other programs can change.
type marks struct {
	packet uint32
	// unknown are the packet's bits that a rule may have changed.
	unknown uint32
	// connection: a rule may have set the connection's. A new one has none.
	connection bool
}

// Len implements firewall.Table.
func (j *judge) Len(chain string) int { return len(j.table.rules[chain]) }

// Text implements firewall.Table.
func (j *judge) Text(chain string, i int) string { return ruleText(j.table.rules[chain][i].line) }

// Judge implements firewall.Table. It never fails.
func (j *judge) Judge(chain string, i int) (firewall.Ternary, firewall.Rule, error) {
	r := &j.table.rules[chain][i].parsedRule
	matched := j.matches(r)
	switch r.target {
	case "DROP", "REJECT", "TARPIT":
		return matched, firewall.Rule{Verdict: firewall.Drop}, nil
	case "RETURN":
		return matched, firewall.Rule{Verdict: firewall.Return}, nil
	case "ACCEPT", "QUEUE", "NFQUEUE": // a queue's program decides
		return matched, firewall.Rule{Verdict: firewall.Accept}, nil
	case "MARK", "CONNMARK":
		if matched != firewall.No {
			j.marks.set(r)
		}
		return matched, firewall.Rule{}, nil
	case "NOTRACK", "CT":
		if matched != firewall.No && (r.target == "NOTRACK" || len(r.targetOptions) > 0 && r.targetOptions[0].name == "--notrack") { // what is not tracked has no DNAT, and so meets no endpoint
			return firewall.Maybe, firewall.Rule{Verdict: firewall.Drop}, nil
		}
		return matched, firewall.Rule{}, nil
	}
	// A chain, or a target that only notes or changes something: there is no chain of its name.
	if r.goes {
		return matched, firewall.Rule{Verdict: firewall.Goto, Chain: r.target}, nil
	}
	return matched, firewall.Rule{Verdict: firewall.Jump, Chain: r.target}, nil
}
