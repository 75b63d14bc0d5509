package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// Firewall judges what rules of other programs do with packets behind the DNAT: those that iptables-save lists in the tables
// filter and mangle. It never changes one.
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
	slices.SortStableFunc(f.tables, func(a, b *firewallTable) int { return strings.Compare(b.name, a.name) }) // mangle is before filter
	return f, all, nil
}

func (f *Firewall) read(ctx context.Context, ns int, v Variant) (complete bool, err error) {
	var t *firewallTable
	err = v.List(ctx, ns, "", Listing{
		Table: func(name string) {
			if t = nil; name == "filter" || name == "mangle" {
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
	hooks := []string{"FORWARD", "POSTROUTING"}
	switch {
	case p.From.Local && p.OnNode: // it comes in again, through the loopback interface
		hooks = []string{"OUTPUT", "POSTROUTING", "INPUT"}
	case p.From.Local:
		hooks = []string{"OUTPUT", "POSTROUTING"}
	case p.OnNode:
		hooks = []string{"INPUT"}
	}
	var blocks []proxy.Block
	for _, hook := range hooks {
		for _, t := range f.tables {
			if t.name == "mangle" && hook == "OUTPUT" { // before the DNAT
				continue
			}
			at := p.At(hook == "INPUT")
			found, _ := firewall.Judge(&judge{table: t, p: &at, mark: p.Mark}, firewall.Base{Table: t.variant + " " + t.name, Chain: hook, Drops: t.drops[hook]})
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
	mark  uint32
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
	case "MARK":
		return matched, firewall.Rule{Uncertain: true}, nil
	}
	// A chain, or a target that only notes or changes something: there is no chain of its name.
	if r.goes {
		return matched, firewall.Rule{Verdict: firewall.Goto, Chain: r.target}, nil
	}
	return matched, firewall.Rule{Verdict: firewall.Jump, Chain: r.target}, nil
}
