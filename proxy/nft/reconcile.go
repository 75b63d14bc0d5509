package nft

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Reconcile implements proxy.Writer. Rules are always written anew, for they
// are few; of the elements only those that differ. A table that does not exist
// yet is filled before it is hooked into the packet path, in transactions of bounded size.
func (w *Writer) Reconcile(ctx context.Context, s *proxy.State) (proxy.Stats, error) {
	var found []proxy.Difference
	stats, err := w.reconcile(ctx, s, func(d proxy.Difference) (more bool) {
		found = append(found, d)
		return len(found) < proxy.MaxFound
	})
	stats.Found = found
	return stats, err
}

// reconcile is Reconcile, and tells differs what it finds until that returns false.
func (w *Writer) reconcile(ctx context.Context, s *proxy.State, differs func(proxy.Difference) (more bool)) (proxy.Stats, error) {
	w.slots = nil
	w.rules.settings = s.Settings()
	var err error
	if w.rules.others, err = w.readPrecedence(); err != nil {
		return proxy.Stats{}, w.opts.explain(err)
	}
	w.stand.Store(&w.rules.others)
	clear(w.refs)
	clear(w.ranges)
	w.batch.reset()
	chains := w.rules.chains()

	t, err := w.openTable(chains, differs)
	if err != nil {
		return proxy.Stats{}, err
	}
	r := reconciler{w: w, state: s, hooked: true, whole: t.replaced, have: map[elemKey]digest{}, ends: map[elemKey]netip.Addr{}, seed: maphash.MakeSeed()}
	if len(t.sets) > 0 {
		r.differs = differs
		if r.wasRules, err = w.readRules(); err != nil {
			return proxy.Stats{}, err
		}
	}
	w.stands = maps.Clone(t.chains)
	for _, c := range chains {
		if _, ok := t.chains[c.name]; !ok {
			r.hooked = t.replaced
		}
	}
	if len(t.sets) > 0 {
		if err := r.read(); err != nil {
			return proxy.Stats{}, err
		}
		// They may have been seen at another interface. Who sends again is seen again before it matters.
		w.batch.emptySet(podSources)
	} else {
		for id := range setCount {
			w.batch.newSet(id)
		}
	}
	if err := r.chains(chains); err != nil {
		return proxy.Stats{}, err
	}
	if staleRanges(r.have, s) > manyRanges {
		if err := w.newRangeSet(w.batch); err != nil {
			return proxy.Stats{}, err
		}
		maps.DeleteFunc(r.have, func(k elemKey, _ digest) bool { return k.set == sourceRanges })
	}
	if err := r.elements(ctx); err != nil {
		return proxy.Stats{}, err
	}
	if err := r.finish(&t, chains); err != nil {
		return proxy.Stats{}, err
	}
	return r.stats, nil
}

// openTable makes sure that there is a table that is ours to change, and returns
// what is in it. A table that cannot be gone on with is replaced within the
// transaction that the caller goes on to fill.
func (w *Writer) openTable(chains []chainDef, differs func(proxy.Difference) bool) (kernelTable, error) {
	t, err := w.readTable()
	if err != nil {
		return t, err
	}
	table := proxy.Difference{What: "table", Where: in(w.opts.Family, ""), Want: tableComment}
	if t.exists {
		if err := w.claim(&t); err != nil {
			return t, err
		}
		why := t.fits(w.batch.defs, chains)
		if why == "" {
			if t.flags&dormant != 0 {
				table.Want, table.Have = "", "flags dormant"
				differs(table)
				w.batch.newTable(TableName, t.flags&^dormant)
			}
			return t, nil
		}
		table.Have = why
		w.log.Warn("table is made anew", "table", TableName, "family", w.opts.Family, "reason", why)
	}
	differs(table)
	var flags uint32
	if !w.opts.Shared {
		if flags, err = w.ownership(); err != nil {
			return t, err
		}
	}
	if t.exists {
		w.batch.deleteTable(TableName)
	}
	w.batch.newTable(TableName, flags)
	return kernelTable{exists: true, replaced: t.exists}, nil
}

// ownership returns the flags that reserve a table, or 0 where the kernel has not both. It tries them.
func (w *Writer) ownership() (uint32, error) {
	const probe = TableName + "-probe"
	w.batch.newTable(probe, ownerPersist)
	w.batch.deleteTable(probe)
	err := w.commit(w.batch)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		w.log.Info("kernel cannot reserve a table (6.9 and later can): changes by other programs are repaired instead", "family", w.opts.Family)
		return 0, nil
	}
	return ownerPersist, w.opts.explain(err)
}

// explain adds the remedy to errors that a user can do something about.
func (o Options) explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("nftables: %w; run as root or with CAP_NET_ADMIN", err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("nftables: %w; the kernel lacks nf_tables for %s (CONFIG_NF_TABLES_%s)", err, o.Family, o.Family)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("nftables: %w; the kernel has not the memory for these rules: free some, or have fewer Services and endpoints", err)
	}
	return err
}

// reconciler is one run of Reconcile.
type reconciler struct {
	w      *Writer
	state  *proxy.State
	hooked bool // packets see the table already: each transaction must leave every frontend right
	whole  bool // all must be one transaction
	// have is what the kernel has and the state was not seen to want yet. There can be
	// a hundred thousand: of the values only a digest is kept, and the end of a range, which its removal takes.
	have  map[elemKey]digest
	ends  map[elemKey]netip.Addr
	seed  maphash.Seed
	stats proxy.Stats
	// differs is told what the kernel has not as it should; nil if nobody wants to know, or everything is written anew.
	differs func(proxy.Difference) (more bool)
	// wasRules are the rules that the kernel had, by chain.
	wasRules map[string][]parsedRule
}

// digest stands for an elemValue. A collision would leave one element wrong, once in 2^64 comparisons.
type digest uint64

func (r *reconciler) digest(v elemValue) digest { return digest(maphash.Comparable(r.seed, v)) }

// read takes in all elements that the kernel has, but for those that packets add.
func (r *reconciler) read() error {
	for id := range setCount {
		if r.w.batch.defs[id].dynamic {
			continue
		}
		restart := func() {
			for k := range r.have {
				if k.set == id {
					delete(r.have, k)
				}
			}
		}
		err := r.w.readElements(id, restart, func(k elemKey, v elemValue, _ time.Duration) bool {
			_, twice := r.have[k]
			r.have[k] = r.digest(v)
			if v.end.IsValid() {
				r.ends[k] = v.end
			}
			return twice
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// chains puts the chains that always exist into the batch, but no base chain while the table is filled.
func (r *reconciler) chains(chains []chainDef) error {
	b := r.w.batch
	for _, c := range chains {
		if c.hook == nil {
			b.newChain(c.name, nil)
		}
	}
	for _, c := range chains {
		if c.hook == nil {
			if err := b.setRules(c.name, c.rules); err != nil {
				return err
			}
		}
	}
	if r.hooked {
		return r.hook(chains)
	}
	return nil
}

// hook puts the base chains and their rules into the batch.
func (r *reconciler) hook(chains []chainDef) error {
	b := r.w.batch
	for _, c := range chains {
		if c.hook != nil {
			r.w.putChain(b, c)
			if err := b.setRules(c.name, c.rules); err != nil {
				return err
			}
		}
	}
	return nil
}

// want makes one element be there.
func (r *reconciler) want(k elemKey, v elemValue) error {
	if err := r.w.lead(r.w.batch, v.chain); err != nil {
		return err
	}
	r.w.ranges.note(k, v, true)
	was, had := r.have[k]
	delete(r.have, k)
	switch {
	case had && was == r.digest(v):
		r.stats.Unchanged++
		return nil
	case had:
		r.element(k, &v, true)
		r.w.batch.deleteElement(k, elemValue{end: r.ends[k]})
		if k.set == serviceIPs {
			counted := map[elemKey]counts{}
			r.w.readCounts([]elemKey{k}, counted)
			r.w.batch.addCounted(k, v, counted[k])
			return nil
		}
	default:
		r.element(k, &v, false)
	}
	r.w.batch.addElement(k, v)
	return nil
}

func (r *reconciler) elements(ctx context.Context) error {
	var err error
	for f, route := range r.state.Routes() {
		elementsOf(f, route, func(k elemKey, v elemValue) {
			if e := r.want(k, v); e != nil && err == nil {
				err = e
			}
		})
		if err != nil {
			return err
		}
		if err := r.cut(ctx); err != nil {
			return err
		}
	}
	for a := range r.state.ClusterIPs() {
		if err := r.want(addrKey(clusterIPs, a), elemValue{}); err != nil {
			return err
		}
	}
	for a := range r.state.LocalEndpoints() {
		if err := r.want(addrKey(hairpin, a, a), elemValue{}); err != nil {
			return err
		}
	}
	// What the kernel has too much.
	for k := range r.have {
		r.element(k, nil, true)
		r.w.batch.deleteElement(k, elemValue{end: r.ends[k]})
		if err := r.cut(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cut commits what was collected when it is much.
func (r *reconciler) cut(ctx context.Context) error {
	if r.whole || r.w.batch.size() < min(chunk, r.w.conn.sendLimit/2) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.commit()
}

func (r *reconciler) commit() error {
	r.stats.Added += r.w.batch.stats.Added
	r.stats.Removed += r.w.batch.stats.Removed
	return r.w.opts.explain(r.w.commit(r.w.batch))
}

// finish hooks the table in, and removes chains and affinity entries that nothing wants.
func (r *reconciler) finish(t *kernelTable, chains []chainDef) error {
	w := r.w
	if !r.hooked {
		if err := r.hook(chains); err != nil {
			return err
		}
	}
	known := map[string]bool{}
	for _, c := range chains {
		known[c.name] = true
	}
	for c := range w.refs {
		known[c.String()] = true
	}
	if err := r.compareChains(t, chains); err != nil {
		return err
	}
	// A chain can go only after the ones whose rules lead to it: those that need another first.
	for _, leading := range []bool{true, false} {
		for name := range t.chains {
			if _, needs := parseChain(name).needs(); !known[name] && needs == leading {
				w.batch.deleteChain(name)
			}
		}
	}
	wrong := w.pools.allowed(r.state)
	if w.dry {
		return r.compareAffinity(wrong)
	}
	if len(t.sets) > 0 {
		if err := w.forgetWith(w.batch, wrong); err != nil {
			return err
		}
	}
	if err := r.commit(); err != nil {
		return err
	}
	return w.forget(wrong)
}
