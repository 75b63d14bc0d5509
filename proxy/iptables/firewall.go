package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/proxy"
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
			j := judge{table: t, p: &p, mark: p.Mark}
			if j.walk(hook, yes) == goesOn && t.drops[hook] {
				j.block(hook, "policy drop", yes)
			}
			blocks = append(blocks, j.blocks...)
			if slices.ContainsFunc(j.blocks, func(b proxy.Block) bool { return b.Sure }) {
				return blocks
			}
		}
	}
	return blocks
}

// judge is one table's judgement of a packet.
type judge struct {
	table *firewallTable
	p     *proxy.Passage
	mark  uint32
	// unsure: a rule that was passed may have let the packet through.
	unsure bool
	depth  int
	blocks []proxy.Block
}

// end says how a chain goes on.
type end uint8

const (
	goesOn end = iota // where it was jumped from
	accepted
	stopped
)

// maxDepth bounds jumps: the kernel lets no chain lead back to itself.
const maxDepth = 64

// block notes a way's end. Of those that are not sure the first is enough.
func (j *judge) block(chain, rule string, matched ternary) {
	b := proxy.Block{Chain: fmt.Sprintf("%s %s %s", j.table.variant, j.table.name, chain), Rule: rule, Sure: matched == yes && !j.unsure}
	if b.Sure || len(j.blocks) == 0 {
		j.blocks = append(j.blocks, b)
	}
}

// walk takes the packet through a chain, which it comes to surely or maybe.
func (j *judge) walk(chain string, comes ternary) end {
	if j.depth++; j.depth > maxDepth {
		return accepted
	}
	defer func() { j.depth-- }()
	for i := range j.table.rules[chain] {
		r := &j.table.rules[chain][i]
		matched := min(j.matches(&r.parsedRule), comes)
		if matched == no {
			continue
		}
		switch r.target {
		case "DROP", "REJECT", "TARPIT":
			if j.block(chain, strings.TrimPrefix(r.line, "-A "+chain+" "), matched); matched == yes {
				return stopped
			}
		case "ACCEPT", "QUEUE", "NFQUEUE", "RETURN": // a queue's program decides
			if matched == yes && r.target == "RETURN" {
				return goesOn
			}
			if matched == yes {
				return accepted
			}
			j.unsure = true
		default: // a chain, or a target that only notes or changes something
			if r.target == "MARK" && matched == maybe {
				j.unsure = true
			}
			e := j.walk(r.target, matched)
			if matched == yes && (e != goesOn || r.goes) {
				return e
			}
			j.unsure = j.unsure || r.goes && matched == maybe
		}
	}
	return goesOn
}
