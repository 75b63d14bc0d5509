package nft

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"sluice/proxy"
)

// Compare calls differs for everything in the kernel that is not as s wants it: for all that Reconcile would mend, one by
// one, in no order. It is a Reconcile that writes nothing, on a connection of its own, so that it can be used beside a Writer. s must
// have been planned with the kernel's slots (Writer.Slots). Nothing is logged.
func Compare(ctx context.Context, opts Options, s *proxy.State, differs func(proxy.Difference)) error {
	opts.Log, opts.Peers = slog.New(slog.DiscardHandler), &Peers{}
	w, err := open(opts)
	if err != nil {
		return err
	}
	defer w.Close()
	w.dry = true
	_, err = w.reconcile(ctx, s, func(d proxy.Difference) bool {
		differs(d)
		return true
	})
	return err
}

// putChain creates a chain, moves it to where it belongs, or leaves it as it is.
func (w *Writer) putChain(b *batch, c chainDef) {
	if has, ok := w.stands[c.name]; ok && c.hook != nil && has.hook != *c.hook {
		b.dropChain(c.name)
		delete(w.stands, c.name) // it is moved once
	}
	b.newChain(c.name, c.hook)
}

// tell tells of a difference, unless nobody wants to know.
func (r *reconciler) tell(d proxy.Difference) {
	if r.differs != nil && !r.differs(d) {
		r.differs = nil
	}
}

// element tells of an element that is missing, another, or too much (want is nil).
func (r *reconciler) element(k elemKey, want *elemValue, had bool) {
	if r.differs == nil {
		return
	}
	def := &r.w.batch.defs[k.set]
	d := proxy.Difference{What: "element", Where: in(r.w.opts.Family, def.name)}
	if want != nil {
		d.Want = def.element(k, *want)
	}
	if had {
		is, have, _, found, _ := r.w.askElement(k) // where that fails its key is all there is to say
		if !found {
			is, have = k, elemValue{end: r.ends[k]}
		}
		d.Have = def.element(is, have)
	}
	r.tell(d)
}

// compareChains tells which chains and rules the kernel had not as they should be. It is known only when all elements were
// gone through which counted chains there must be.
func (r *reconciler) compareChains(t *kernelTable, chains []chainDef) error {
	if r.differs == nil {
		return nil
	}
	all := slices.Clone(chains)
	for c := range r.w.refs {
		all = append(all, chainDef{name: c.String(), rules: r.w.rules.counted(c)})
	}
	known := map[string]bool{}
	for _, c := range all {
		known[c.name] = true
		if err := r.compareChain(t, &c); err != nil {
			return err
		}
	}
	for name, c := range t.chains {
		if !known[name] {
			r.tell(proxy.Difference{What: "chain", Where: in(r.w.opts.Family, name), Have: c.String()})
		}
	}
	return nil
}

func (r *reconciler) compareChain(t *kernelTable, c *chainDef) error {
	where := in(r.w.opts.Family, c.name)
	var want hook
	if c.hook != nil {
		want = *c.hook
	}
	was, exists := t.chains[c.name]
	switch {
	case !exists:
		r.tell(proxy.Difference{What: "chain", Where: where, Want: want.String()})
		return nil
	case was.hook != want:
		d := proxy.Difference{What: "chain", Where: where, Want: want.String(), Have: was.hook.String()}
		if other := r.w.rules.others[want.num]; want.typ == "nat" && other.found && other.chain.Priority <= was.priority {
			d.Have += fmt.Sprintf(", behind chain %s %s %s of priority %d", other.chain.Family, other.chain.Table, other.chain.Name, other.chain.Priority)
		}
		r.tell(d)
	case was.drop:
		r.tell(proxy.Difference{What: "chain", Where: where, Want: "policy accept", Have: "policy drop"})
	}
	rules := make([]parsedRule, len(c.rules))
	for i := range c.rules {
		var err error
		if rules[i], err = c.rules[i].parsed(r.w.opts.Family); err != nil {
			return fmt.Errorf("encode a rule of chain %s: %w", c.name, err)
		}
	}
	r.compareRules(where, rules, r.wasRules[c.name])
	return nil
}

// compareRules tells which rules are not there, and which are too much. Rules in another order are both.
func (r *reconciler) compareRules(where string, want, have []parsedRule) {
	same := func(a, b parsedRule) bool { return a.comment == b.comment && slices.Equal(a.ops, b.ops) }
	want, have = proxy.Differing(want, have, same)
	for i := range max(len(want), len(have)) {
		d := proxy.Difference{What: "rule", Where: where}
		if i < len(want) {
			d.Want = ruleText(want[i], nil)
		}
		if i < len(have) {
			d.Have = ruleText(have[i], nil)
		}
		if d.Want == d.Have { // one of them does what its text does not show
			d.Have += fmt.Sprintf(" (as the kernel has it: %+v)", have[i].ops)
		}
		r.tell(d)
	}
}

// compareAffinity tells which clients are bound to an endpoint that they may not have.
func (r *reconciler) compareAffinity(wrong func(affinityEntry) bool) error {
	if r.differs == nil {
		return nil
	}
	found, err := r.w.boundClients(wrong)
	def := &r.w.batch.defs[affinity]
	for _, c := range found {
		r.tell(proxy.Difference{What: "element", Where: in(r.w.opts.Family, def.name), Have: def.element(c.key, c.value)})
	}
	return err
}
