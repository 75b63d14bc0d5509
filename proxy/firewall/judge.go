// Package firewall judges what chains of other programs do with a packet. They can ask for anything, also for what cannot be known
// from here, so that there are three answers.
package firewall

import (
	"slices"

	"sluice/proxy"
)

// Ternary is what is known of a condition. The smaller of two is that of both together.
type Ternary uint8

// The answers.
const (
	No Ternary = iota
	Maybe
	Yes
)

// Judged is the answer of a condition that is known.
func Judged(b bool) Ternary {
	if b {
		return Yes
	}
	return No
}

// Not is the answer of the opposite.
func (t Ternary) Not() Ternary { return Yes - t }

// Verdict is what a rule does with a packet that matches.
type Verdict uint8

// The verdicts.
const (
	// Continue with the next rule.
	Continue Verdict = iota
	// Return to where the chain was jumped from.
	Return
	// Accept in this base chain. A packet that another program decides about is taken for accepted.
	Accept
	// Drop or reject.
	Drop
	// Jump to a chain, and come back.
	Jump
	// Goto a chain, and come back to where this one was jumped from.
	Goto
)

// Rule is a rule that was judged.
type Rule struct {
	Verdict Verdict
	// Chain is where Jump and Goto lead.
	Chain string
	// Uncertain: what comes behind depends on this rule, though it decides nothing.
	Uncertain bool
}

// Table is the rules of one table.
type Table interface {
	// Len is the number of rules of a chain; a chain that does not exist has none.
	Len(chain string) int
	// Judge judges one rule of a chain: whether the packet matches, and what becomes of it then.
	Judge(chain string, i int) (Ternary, Rule, error)
	// Text is a rule for people.
	Text(chain string, i int) string
}

// Base is a base chain: one that is in the packet path.
type Base struct {
	// Table is where it is, for people, like "nftables inet firewalld".
	Table string
	Chain string
	// Drops: what no rule decides about is dropped.
	Drops bool
}

// Judge returns what ends a packet's way in a base chain: what does so surely is the last, and of what may do so the first comes before it.
func Judge(t Table, b Base) ([]proxy.Block, error) {
	j := judge{t: t, base: b}
	e, err := j.walk(b.Chain, Yes)
	if err == nil && e == goesOn && b.Drops {
		j.block(b.Chain, "policy drop", Yes)
	}
	return j.blocks, err
}

// Sure tells whether one of the blocks is.
func Sure(blocks []proxy.Block) bool {
	return slices.ContainsFunc(blocks, func(b proxy.Block) bool { return b.Sure })
}

type judge struct {
	t    Table
	base Base
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
func (j *judge) block(chain, rule string, matched Ternary) {
	b := proxy.Block{Chain: j.base.Table + " " + chain, Rule: rule, Sure: matched == Yes && !j.unsure}
	if b.Sure || len(j.blocks) == 0 {
		j.blocks = append(j.blocks, b)
	}
}

// walk takes the packet through a chain, which it comes to surely or maybe.
func (j *judge) walk(chain string, comes Ternary) (end, error) {
	if j.depth++; j.depth > maxDepth {
		return accepted, nil
	}
	defer func() { j.depth-- }()
	for i := range j.t.Len(chain) {
		matched, r, err := j.t.Judge(chain, i)
		if err != nil {
			return accepted, err
		}
		if matched = min(matched, comes); matched == No {
			continue
		}
		j.unsure = j.unsure || r.Uncertain && matched == Maybe
		switch r.Verdict {
		case Drop:
			if j.block(chain, j.t.Text(chain, i), matched); matched == Yes {
				return stopped, nil
			}
		case Return, Accept:
			switch {
			case matched == Maybe:
				j.unsure = true
			case r.Verdict == Return:
				return goesOn, nil
			default:
				return accepted, nil
			}
		case Jump, Goto:
			e, err := j.walk(r.Chain, matched)
			if err != nil || matched == Yes && (e != goesOn || r.Verdict == Goto) {
				return e, err
			}
			j.unsure = j.unsure || r.Verdict == Goto && matched == Maybe
		}
	}
	return goesOn, nil
}
