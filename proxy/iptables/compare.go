package iptables

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"sluice/proxy"
)

// Compare calls differs for everything in the kernel that is not as s wants it: for all that Reconcile would mend, one by
// one. It is a Reconcile that writes nothing, and can be used beside a Writer. s must have been planned with the kernel's slots
// (Writer.Slots). Nothing is logged.
func Compare(ctx context.Context, opts Options, s *proxy.State, differs func(proxy.Difference)) error {
	opts.Log = slog.New(slog.DiscardHandler)
	w, err := openWriter(ctx, opts)
	if err != nil {
		return err
	}
	w.rules.fill(s)
	r := reconciler{w: w}
	for t := range tableCount {
		if err := r.read(ctx, t); err != nil {
			return err
		}
	}
	r.compare()
	return r.differences(ctx, func(d proxy.Difference) bool {
		differs(d)
		return true
	})
}

// find notes what was found that another program changed. In a kernel without rules of ours nothing was. That it cannot be
// read is no reason not to mend it.
func (r *reconciler) find(ctx context.Context) {
	known := false
	for t := range tableCount {
		known = known || len(r.have[t])+len(r.leading[t]) > 0
	}
	if !known {
		return
	}
	err := r.differences(ctx, func(d proxy.Difference) bool {
		r.stats.Found = append(r.stats.Found, d)
		return len(r.stats.Found) < proxy.MaxFound
	})
	if err != nil {
		r.w.log.Debug("what was changed is not known", "family", r.w.opts.Family, "error", err)
	}
}

// in names a chain: "ip nat SLUICE-SERVICES", as nft has it.
func (w *Writer) in(t table, chain string) string { return familyTable(w.opts.Family, t, chain) }

func familyTable(f proxy.Family, t table, chain string) string {
	family := "ip"
	if f == proxy.IPv6 {
		family = "ip6"
	}
	return fmt.Sprintf("%s %s %s", family, t, chain)
}

// differences tells what compare found, until differs returns false. The texts of the chains that differ are read once more: in
// the kernel they are seldom many.
func (r *reconciler) differences(ctx context.Context, differs func(proxy.Difference) (more bool)) error {
	for t := range tableCount {
		if !r.jumpDifferences(t, differs) {
			return nil
		}
		for _, name := range r.gone[t] {
			if !differs(proxy.Difference{What: "chain", Where: r.w.in(t, name), Have: ruleCount(r.have[t][name].rules)}) {
				return nil
			}
		}
	}
	texts, err := r.texts(ctx)
	if err != nil {
		return err
	}
	more := true
	told := [tableCount]map[string]bool{{}, {}}
	r.w.rules.chains(&r.w.chain, func(c *chain, _ bool) {
		if _, written := r.write[c.table][c.name]; !written || !more || told[c.table][c.name] {
			return
		}
		told[c.table][c.name] = true
		where := r.w.in(c.table, c.name)
		if _, exists := r.have[c.table][c.name]; !exists {
			more = differs(proxy.Difference{What: "chain", Where: where, Want: ruleCount(c.rules)})
			return
		}
		want := strings.Split(strings.TrimSuffix(string(c.text), "\n"), "\n")
		more = ruleDifferences(where, want, texts[c.table][c.name], differs)
	})
	return nil
}

func ruleCount(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}

// ruleDifferences tells which rules are not there, and which are too much. Rules in another order are both.
func ruleDifferences(where string, want, have []string, differs func(proxy.Difference) bool) (more bool) {
	missing, surplus := proxy.Differing(want, have, func(a, b string) bool { return a == b })
	for i := range max(len(missing), len(surplus)) {
		d := proxy.Difference{What: "rule", Where: where}
		if i < len(missing) {
			d.Want = ruleText(missing[i])
		}
		if i < len(surplus) {
			d.Have = ruleText(surplus[i])
		}
		if !differs(d) {
			return false
		}
	}
	return true
}

// ruleText is a rule without the chain that it is in.
func ruleText(line string) string {
	rest := strings.TrimPrefix(line, "-A ")
	_, text, _ := strings.Cut(rest, " ")
	return text
}

// jumpDifferences tells of the rules of ours in chains of the system: what is wrong with one that is there, and which is not.
func (r *reconciler) jumpDifferences(t table, differs func(proxy.Difference) bool) (more bool) {
	there := map[string]bool{}
	for _, l := range r.surplus[t] {
		from, _, _ := strings.Cut(strings.TrimPrefix(l.line, "-A "), " ")
		d := proxy.Difference{What: "jump", Where: r.w.in(t, from), Have: ruleText(l.line)}
		wanted := slices.ContainsFunc(r.missing[t], func(j jump) bool { return j.line() == l.line })
		if l.behind != "" {
			d.Have += ", behind " + ruleText(l.behind)
		}
		switch {
		case wanted && !there[l.line] && l.behind == "": // one of several is right
			there[l.line] = true
			continue
		case wanted && !there[l.line]:
			there[l.line] = true
			d.Want = ruleText(l.line)
		}
		if !differs(d) {
			return false
		}
	}
	for _, j := range r.missing[t] {
		if !there[j.line()] && !differs(proxy.Difference{What: "jump", Where: r.w.in(t, j.from), Want: j.rule}) {
			return false
		}
	}
	return true
}

// texts reads the rules of the chains that differ.
func (r *reconciler) texts(ctx context.Context) (texts [tableCount]map[string][]string, err error) {
	for t := range tableCount {
		texts[t] = map[string][]string{}
		wanted := false
		for name := range r.write[t] {
			wanted = wanted || r.have[t][name].rules > 0
		}
		if !wanted {
			continue
		}
		err := r.w.read(ctx, t, reader{rule: func(name, line []byte) {
			if _, written := r.write[t][string(name)]; written {
				texts[t][string(name)] = append(texts[t][string(name)], string(line))
			}
		}})
		if err != nil {
			return texts, err
		}
	}
	return texts, nil
}
