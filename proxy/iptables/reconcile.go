package iptables

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"

	"sluice/proxy"
)

// Reconcile implements proxy.Writer. The jumps to the chains are part of the same transaction, so that packets of an
// empty kernel see all of a table or nothing.
func (w *Writer) Reconcile(ctx context.Context, s *proxy.State) (proxy.Stats, error) {
	w.slots = nil
	w.expects.begin()
	w.known = [tableCount]map[string]known{}
	w.rules.fill(s)
	r := reconciler{w: w}
	for t := range tableCount {
		if err := r.read(ctx, t); err != nil {
			return proxy.Stats{}, err
		}
	}
	r.compare()
	if r.stats.Added+r.stats.Removed > 0 || r.work {
		r.find(ctx)
		if err := w.restore(ctx, r.input); err != nil {
			return proxy.Stats{}, err
		}
	}
	w.known = r.want
	w.size = r.stats.Added + r.stats.Unchanged
	w.print = r.fingerprint()
	w.expects.end(w.print, 0)
	return r.stats, nil
}

// lead is a rule of ours in a chain of the system, and the rule that decides before it: empty if none does.
type lead struct{ line, behind string }

// reconciler is one run of Reconcile.
type reconciler struct {
	w    *Writer
	want [tableCount]map[string]known
	have [tableCount]map[string]saved
	// leading are our rules in chains of the system.
	leading [tableCount][]lead
	// write are the chains that differ; the value is the number of the last pass that wrote them.
	write   [tableCount]map[string]int
	order   [tableCount][]string // the same, in order
	gone    [tableCount][]string
	surplus [tableCount][]lead // of leading
	missing [tableCount][]jump
	pass    int
	work    bool
	stats   proxy.Stats
}

// fingerprint stands for all that is wanted.
func (r *reconciler) fingerprint() (all fingerprint) {
	for t := range tableCount {
		for name, k := range r.want[t] {
			all = all.plus(chainPrint(t, name, k.digest, int(k.rules)))
		}
	}
	for _, j := range jumps {
		all = all.plus(leadPrint(j.table, []byte(j.line())))
	}
	return all
}

func (r *reconciler) read(ctx context.Context, t table) error {
	have := map[string]saved{}
	r.have[t] = have
	return r.w.read(ctx, t, reader{
		chain: func(name []byte) { have[string(name)] = saved{} },
		rule: func(name, line []byte) {
			c := have[string(name)]
			c.digest = c.digest.add(line)
			c.rules++
			have[string(name)] = c
		},
		lead: func(line []byte, own bool, behind []byte) {
			if own { // those of others, who may have put in anything, are theirs
				r.leading[t] = append(r.leading[t], lead{string(line), string(behind)})
			}
		},
	})
}

// compare finds out what has to be written.
func (r *reconciler) compare() {
	for t := range tableCount {
		r.want[t], r.write[t] = map[string]known{}, map[string]int{}
	}
	r.w.rules.chains(&r.w.chain, func(c *chain, own bool) {
		k, seen := r.want[c.table][c.name]
		if !own {
			k.refs++
		}
		k.digest, k.rules = c.digest, int32(c.rules)
		r.want[c.table][c.name] = k
		if seen {
			return
		}
		have, exists := r.have[c.table][c.name]
		if exists && have.digest == c.digest {
			r.stats.Unchanged += c.rules
			return
		}
		r.stats.Added += c.rules
		r.stats.Removed += have.rules
		r.write[c.table][c.name] = 0
		r.order[c.table] = append(r.order[c.table], c.name)
		r.work = true
	})
	for t := range tableCount {
		for name, have := range r.have[t] {
			if _, wanted := r.want[t][name]; !wanted {
				r.gone[t] = append(r.gone[t], name)
				r.stats.Removed += max(have.rules, 1)
				r.work = true
			}
		}
		slices.Sort(r.gone[t])
	}
	r.compareJumps()
}

// compareJumps takes a jump for right if it is there once, before all that decides. Of several alike iptables deletes the first,
// whichever is meant: they all go, and one comes.
func (r *reconciler) compareJumps() {
	r.surplus = r.leading
	for _, j := range jumps {
		same := func(l lead) bool { return l.line == j.line() }
		first := slices.IndexFunc(r.surplus[j.table], same)
		if first >= 0 && r.surplus[j.table][first].behind == "" && !slices.ContainsFunc(r.surplus[j.table][first+1:], same) {
			r.surplus[j.table] = slices.Delete(r.surplus[j.table], first, first+1)
			continue
		}
		r.missing[j.table] = append(r.missing[j.table], j)
		r.stats.Added++
		r.work = true
	}
	for t := range tableCount {
		r.stats.Removed += len(r.surplus[t])
		r.work = r.work || len(r.surplus[t]) > 0
	}
}

// input writes what iptables-restore is to do.
func (r *reconciler) input(to io.Writer) error {
	r.pass++
	var tables [tableCount]tableInput
	for t := range tableCount {
		in := &tables[t]
		in.chains, in.deleted = r.order[t], r.gone[t]
		for _, l := range r.surplus[t] {
			in.first = append(in.first, strings.Replace(l.line, "-A", "-D", 1))
		}
		in.rules = func(to *bufio.Writer) {
			r.w.rules.chains(&r.w.chain, func(c *chain, _ bool) {
				if pass, differs := r.write[c.table][c.name]; differs && pass != r.pass && c.table == t {
					r.write[c.table][c.name] = r.pass
					to.Write(c.text)
				}
			})
		}
		for _, j := range r.missing[t] {
			in.last = append(in.last, j.first())
		}
	}
	return writeInput(to, &tables)
}
