package nft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Options are what a Writer can be told.
type Options struct {
	// Family of the table. It must be set.
	Family proxy.Family
	// NetNS is a file descriptor of the network namespace to write to; 0 is the calling thread's.
	NetNS int
	// Shared leaves the table open to changes by other programs, where the kernel could reserve it.
	Shared bool
	// Peers are the writers whose changes are no news to each other's Watch; nil is this one alone.
	Peers *Peers
	// Log; nil logs nothing.
	Log *slog.Logger
}

// Table flags of linux/netfilter/nf_tables.h: only the owner's socket may change
// the table (NFT_TABLE_F_OWNER, kernel 5.12), and it stays when the owner goes
// (NFT_TABLE_F_PERSIST, kernel 6.9). The first without the second would lose the rules with the process.
const ownerPersist = 2 | 4

// chunk is the size in bytes at which a large reconcile is cut into transactions.
const chunk = 1 << 20

// Writer is a proxy.Writer for nf_tables.
type Writer struct {
	opts  Options
	log   *slog.Logger
	conn  *conn
	batch *batch
	slots map[proxy.Frontend]*kernelSlots
	// refs counts what leads to each counted chain.
	refs  map[chain]int
	pools affinityPools
	// ranges are the source ranges that the kernel has.
	ranges sourceRangeSet
	// rules has the settings of the last Reconcile.
	rules ruleset
	// stand are the nat chains of other programs that ours stand before, for Watch.
	stand atomic.Pointer[precedence]
	// stands are the chains that the kernel had when Reconcile began.
	stands map[string]kernelChain
	// dry: nothing is written.
	dry bool
}

var _ proxy.Writer = (*Writer)(nil)

// New opens a writer and reads which slots the kernel has.
func New(opts Options) (*Writer, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Peers == nil {
		opts.Peers = &Peers{}
	}
	w, err := open(opts)
	if err != nil {
		return nil, err
	}
	opts.Peers.add(w.conn.portID())
	if w.slots, err = w.readSlots(); err != nil {
		// Not fatal: planning starts with fresh slots then, and Reconcile tells what is wrong.
		w.log.Debug("kernel's slots not read", "family", opts.Family, "error", err)
		w.slots = nil
	}
	return w, nil
}

// open makes a writer that knows nothing of the kernel yet.
func open(opts Options) (*Writer, error) {
	c, err := dial(opts.NetNS)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		opts: opts, log: opts.Log, conn: c, batch: newBatch(opts.Family, &c.seq),
		refs: map[chain]int{}, pools: affinityPools{}, ranges: sourceRangeSet{},
	}
	w.rules = ruleset{family: opts.Family, defs: &w.batch.defs}
	return w, nil
}

// Slots implements proxy.Writer.
func (w *Writer) Slots(f proxy.Frontend) (pool, localPool []netip.AddrPort) {
	if s := w.slots[f]; s != nil {
		return s.pool, s.local
	}
	return nil, nil
}

// Close ends the connection; the rules stay.
func (w *Writer) Close() error { return w.conn.Close() }

// Cleanup removes the table.
func (w *Writer) Cleanup(context.Context) error {
	t, err := w.readTable()
	if err != nil || !t.exists {
		return err
	}
	if err := w.claim(&t); err != nil {
		return err
	}
	w.batch.deleteTable(TableName)
	return w.commit(w.batch)
}

// claim takes over a table that an owner who is gone left behind.
func (w *Writer) claim(t *kernelTable) error {
	if t.flags&ownerPersist == 0 || t.owner == w.conn.portID() {
		return nil
	}
	// The kernel took the owner flag off when the owner's socket closed.
	w.batch.newTable(TableName, t.flags|ownerPersist)
	err := w.commit(w.batch)
	if errors.Is(err, unix.EPERM) && t.owner != 0 {
		return fmt.Errorf("table %s (%s) belongs to another running program, %s: is a second sluice agent running? %w", TableName, w.opts.Family, describePort(w.opts.NetNS, t.owner), err)
	}
	if err != nil {
		return fmt.Errorf("take over table %s (%s): %w", TableName, w.opts.Family, err)
	}
	return nil
}

// Apply implements proxy.Writer.
func (w *Writer) Apply(_ context.Context, d *proxy.Delta) (proxy.Stats, error) {
	wrong := w.pools.lost(d.Frontends)
	b := w.batch
	var dead []chain
	counted := w.carried(d.Frontends)
	for i := range d.Frontends {
		c := &d.Frontends[i]
		unchanged, err := w.change(b, c, counted, &dead)
		if err != nil {
			b.reset()
			return proxy.Stats{}, err
		}
		b.stats.Unchanged += unchanged
	}
	for _, a := range d.AddedClusterIPs {
		b.addElement(addrKey(clusterIPs, a), elemValue{})
	}
	for _, a := range d.RemovedClusterIPs {
		b.deleteElement(addrKey(clusterIPs, a), elemValue{})
	}
	for _, a := range d.AddedLocalEndpoints {
		b.addElement(addrKey(hairpin, a, a), elemValue{})
	}
	for _, a := range d.RemovedLocalEndpoints {
		b.deleteElement(addrKey(hairpin, a, a), elemValue{})
	}
	w.deleteUnused(b, dead)
	if b.removed[sourceRanges] > manyRanges {
		if err := w.renewRanges(b); err != nil {
			b.reset()
			return proxy.Stats{}, err
		}
	}
	if wrong != nil {
		if err := w.forgetWith(b, wrong); err != nil {
			b.reset()
			return proxy.Stats{}, err
		}
	}
	stats := b.stats
	if err := w.commit(b); err != nil {
		return proxy.Stats{}, w.opts.explain(err)
	}
	if wrong != nil {
		if err := w.forget(wrong); err != nil {
			return stats, err
		}
	}
	return stats, nil
}

// change puts the elements that differ between two routes of a frontend into the batch.
func (w *Writer) change(b *batch, c *proxy.FrontendChange, counted map[elemKey]counts, dead *[]chain) (unchanged int, err error) {
	old := make(map[elemKey]elemValue, 16)
	elementsOf(c.Frontend, c.Old, func(k elemKey, v elemValue) { old[k] = v })
	elementsOf(c.Frontend, c.New, func(k elemKey, v elemValue) {
		was, had := old[k]
		if had && was == v {
			unchanged++
			delete(old, k)
			return
		}
		if e := w.lead(b, v.chain); e != nil && err == nil {
			err = e
		}
		b.addCounted(k, v, counted[k])
		w.ranges.note(k, v, true)
	})
	for k, v := range old {
		b.deleteElement(k, v)
		w.ranges.note(k, v, false)
		w.unlead(v.chain, dead)
	}
	return unchanged, err
}

// lead counts one more way to a chain and creates the chain before the first.
func (w *Writer) lead(b *batch, c chain) error {
	if !c.counted() {
		return nil
	}
	_, exists := w.refs[c]
	w.refs[c]++
	if exists {
		return nil
	}
	if need, ok := c.needs(); ok {
		if err := w.lead(b, need); err != nil {
			return err
		}
	}
	b.newChain(c.String(), nil)
	return b.setRules(c.String(), w.rules.counted(c))
}

// unlead counts one way less; what may be unused then is added to dead.
func (w *Writer) unlead(c chain, dead *[]chain) {
	if !c.counted() {
		return
	}
	w.refs[c]--
	if w.refs[c] > 0 {
		return
	}
	*dead = append(*dead, c)
}

// deleteUnused deletes the chains among dead that nothing leads to now.
func (w *Writer) deleteUnused(b *batch, dead []chain) {
	for i := 0; i < len(dead); i++ {
		c := dead[i]
		if n, known := w.refs[c]; !known || n > 0 {
			continue
		}
		delete(w.refs, c)
		b.deleteChain(c.String())
		if need, ok := c.needs(); ok {
			w.unlead(need, &dead)
		}
	}
}

// Cleanup removes the table of a family, whoever wrote it, unless another running program owns it.
// It tells whether there was one.
func Cleanup(ctx context.Context, opts Options) (removed bool, err error) {
	if exists, err := TableExists(opts, TableName); err != nil || !exists {
		return false, err
	}
	w, err := New(opts)
	if err != nil {
		return false, err
	}
	defer w.Close()
	err = w.Cleanup(ctx)
	return err == nil, err
}
