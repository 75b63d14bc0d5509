package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Listing is told what iptables-save lists, in its order. What the functions get is valid during the call only. Any of
// them may be nil.
type Listing struct {
	// Table begins a table.
	Table func(name string)
	// Chain is a chain of it. The policy is "-" for one that is not built in.
	Chain func(name, policy []byte)
	// Rule is a rule: the chain it is in, and the whole line.
	Rule func(chain, line []byte)
}

// IncompatibleError is a table that iptables-nft does not list, because a rule of another program in it uses what
// iptables has no word for.
type IncompatibleError struct{ Program, Table string }

func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("%s cannot list table %s, as nft wrote rules to it that iptables has no words for; move those rules to a table of another name (`nft list ruleset` shows them), or use --proxy-mode=nftables", e.Program, e.Table)
}

// maxLine is the longest line that iptables-save may have.
const maxLine = 1 << 20

// List lists the rules of one table, or of all that there are if table is empty, in a network namespace as Options name it. A table that
// cannot be listed is an *IncompatibleError, after all others were listed.
func (v Variant) List(ctx context.Context, ns int, table string, to Listing) error {
	var args []string
	if table != "" {
		args = []string{"-t", table}
	}
	err := Run(ctx, ns, nil, func(in io.Reader) error {
		return to.Read(in, v.Save, table)
	}, v.Save, args...)
	return explain(err)
}

// Read reads what iptables-save prints. The program ends with success also where it left out a table, so that its
// words are checked: wanted, if it is not empty, must be there, and what begins must end.
func (to Listing) Read(in io.Reader, program, wanted string) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var incompatible error
	open, found := "", wanted == ""
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			continue
		}
		switch line[0] {
		case '#':
			if name, ok := incompatibleTable(line); ok {
				incompatible = errors.Join(incompatible, &IncompatibleError{program, name})
			}
		case '*':
			if open != "" {
				return fmt.Errorf("%s: table %s has no end", program, open)
			}
			open = string(line[1:])
			found = found || open == wanted
			if to.Table != nil {
				to.Table(open)
			}
		case ':':
			if to.Chain != nil && open != "" {
				name, rest, _ := bytes.Cut(line[1:], []byte(" "))
				policy, _, _ := bytes.Cut(rest, []byte(" "))
				to.Chain(name, policy)
			}
		case '-':
			if rest, ok := bytes.CutPrefix(line, []byte("-A ")); ok && to.Rule != nil && open != "" {
				name, _, _ := bytes.Cut(rest, []byte(" "))
				to.Rule(name, line)
			}
		case 'C': // COMMIT
			open = ""
		}
	}
	switch {
	case lines.Err() != nil:
		return fmt.Errorf("%s: %w", program, lines.Err())
	case incompatible != nil:
		return incompatible
	case open != "":
		return fmt.Errorf("%s: table %s has no end", program, open)
	case !found:
		return fmt.Errorf("%s did not list table %s", program, wanted)
	}
	return nil
}

// incompatibleTable reads "# Table `nat' is incompatible, use 'nft' tool.", which is all that iptables-nft-save says of it
// (nft_is_table_compatible of iptables/nft.c).
func incompatibleTable(line []byte) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("# Table `"))
	word, after, cut := bytes.Cut(rest, []byte("'"))
	return string(word), ok && cut && bytes.Contains(after, []byte("incompatible"))
}

// Target returns the chain or target that a rule of iptables-save leads to (-j or -g); nil without one. A comment can hold
// anything, in quotes.
func Target(line []byte) []byte {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted:
			i++ // what follows ends nothing
		case c == '"':
			quoted = !quoted
		case quoted || c != ' ' || i+4 > len(line):
		case string(line[i:i+4]) == " -j ", string(line[i:i+4]) == " -g ":
			target, _, _ := bytes.Cut(line[i+4:], []byte(" "))
			return target
		}
	}
	return nil
}

// saved is what iptables-save told of one chain.
type saved struct {
	digest digest
	rules  int
}

// reader takes in what one table has of ours.
type reader struct {
	// chain is called for each chain of ours, rule for each of its rules: the whole line, and
	// the chain's name in it. They are valid during the call only.
	chain func(name []byte)
	rule  func(name, line []byte)
	// lead is called for each rule of another chain that leads to one of ours. own says that the rule
	// is ours, too, by its comment. behind is the first rule before it in its chain that decides about packets itself; nil if none does.
	lead func(line []byte, own bool, behind []byte)
}

// deciding are the targets that end a packet's way through the table nat: what comes behind does not see it. Of another
// program's chain before ours nothing is known, and programs that want theirs to be the first would fight for it.
var deciding = [][]byte{[]byte("ACCEPT"), []byte("RETURN"), []byte("DNAT"), []byte("REDIRECT"), []byte("NETMAP"), []byte("MASQUERADE"), []byte("SNAT")}

func decides(line []byte) bool {
	target := Target(line)
	return slices.ContainsFunc(deciding, func(d []byte) bool { return bytes.Equal(d, target) })
}

// read runs iptables-save for one table.
func (w *Writer) read(ctx context.Context, t table, r reader) error {
	ctx, cancel := w.limited(ctx)
	defer cancel()
	first := map[string][]byte{} // the first rule that decides, by chain
	err := w.variant.List(ctx, w.opts.NetNS, t.String(), Listing{
		Chain: func(name, _ []byte) {
			if r.chain != nil && bytes.HasPrefix(name, prefixBytes) {
				r.chain(name)
			}
		},
		Rule: func(name, line []byte) {
			switch {
			case bytes.HasPrefix(name, prefixBytes):
				if r.rule != nil {
					r.rule(name, line)
				}
			case r.lead != nil && bytes.Contains(line, prefixBytes) && bytes.HasPrefix(Target(line), prefixBytes):
				r.lead(line, bytes.Contains(line, ownComment), first[string(name)])
			case r.lead != nil && t == nat && first[string(name)] == nil && decides(line):
				first[string(name)] = bytes.Clone(line)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("read back table %s (%v): %w", t, w.opts.Family, err)
	}
	return nil
}

var (
	prefixBytes = []byte(prefix)
	ownComment  = []byte(` --comment "` + jumpComment)
)

// withoutComment takes the comment out of a rule of ours, which has one at most and no quote in it.
func withoutComment(line string) string {
	before, rest, ok := strings.Cut(line, ` "`)
	_, after, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		return line
	}
	return before + after
}
