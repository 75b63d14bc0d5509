package iptables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-iptables/iptables"

	"sluice/proxy"
)

// Options are what a Writer can be told.
type Options struct {
	// Family of the rules. It must be set.
	Family proxy.Family
	// NetNS is a file descriptor of the network namespace to write to; 0 is the calling thread's.
	NetNS int
	// Variant is NFT or Legacy; empty is the one that the machine uses (see Detect).
	Variant string
	// LockTimeout bounds how long a command waits for the xtables lock, in whole seconds; 0 is five seconds.
	LockTimeout time.Duration
	// Interval is how often Watch compares all rules, if nothing tells it to; 0 is 30 seconds.
	Interval time.Duration
	// Log; nil logs nothing.
	Log *slog.Logger
}

// Writer is a proxy.Writer for iptables.
type Writer struct {
	opts    Options
	log     *slog.Logger
	variant Variant
	ipt     *iptables.IPTables
	rules   *ruleset
	slots   map[proxy.Frontend]kernelSlots
	// known is what the kernel has, chain by chain; nil if that is not known. The texts are not kept.
	known [tableCount]map[string]known
	chain chain // its memory is used again and again

	mu sync.Mutex // guards what Watch looks at
	// sum stands for all that is to be in the kernel; changes counts the changes of it.
	sum     digest
	changes int
	valid   bool
}

// known is one chain in the kernel.
type known struct {
	digest digest
	rules  int32
	refs   int32 // the frontends whose routes have the chain; 0 for chains that are no route's
}

var _ proxy.Writer = (*Writer)(nil)

// New finds the iptables to use, and reads which slots the kernel has.
func New(opts Options) (*Writer, error) {
	ctx := context.Background()
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	v, err := opts.choose(ctx)
	if err != nil {
		return nil, err
	}
	w := &Writer{opts: opts, log: opts.Log, variant: v}
	if w.ipt, err = opts.goIPTables(v); err != nil {
		return nil, err
	}
	w.rules = newRuleset(opts.Family, w.ipt.HasRandomFully())
	w.chain.family = opts.Family
	if w.slots, err = w.readSlots(ctx); err != nil {
		// Not fatal: planning starts with fresh slots then, and Reconcile tells what is wrong.
		w.log.Debug("kernel's slots not read", "family", opts.Family, "error", err)
		w.slots = nil
	}
	return w, nil
}

// choose finds the variant that the options ask for, or the one that the machine uses.
func (o Options) choose(ctx context.Context) (Variant, error) {
	if o.Variant == "" {
		v, why, mixed, err := Detect(ctx, o)
		if err != nil {
			return Variant{}, err
		}
		o.Log.Info("iptables chosen", "family", o.Family, "reason", why)
		if mixed != "" {
			o.Log.Warn(mixed)
		}
		return v, nil
	}
	list, err := Variants(ctx, o)
	if err != nil {
		return Variant{}, err
	}
	i := slices.IndexFunc(list, func(v Variant) bool { return v.Name == o.Variant })
	if i < 0 {
		return Variant{}, fmt.Errorf("find the variant %q of %s: only %s is installed", o.Variant, baseCommand(o.Family), list[0])
	}
	return list[i], nil
}

func (o Options) lockSeconds() int {
	if o.LockTimeout == 0 {
		return 5
	}
	return max(int(o.LockTimeout/time.Second), 1)
}

func (o Options) goIPTables(v Variant) (ipt *iptables.IPTables, err error) {
	protocol := iptables.ProtocolIPv4
	if o.Family == proxy.IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	err = inNamespace(o.NetNS, func() (err error) {
		ipt, err = iptables.New(iptables.IPFamily(protocol), iptables.Path(v.Path), iptables.Timeout(o.lockSeconds()))
		return err
	})
	return ipt, err
}

// Variant is the iptables that the writer uses.
func (w *Writer) Variant() Variant { return w.variant }

// Slots implements proxy.Writer.
func (w *Writer) Slots(f proxy.Frontend) (pool, localPool []netip.AddrPort) {
	s := w.slots[f]
	return s.pool, s.local
}

// Close ends the writer; the rules stay.
func (w *Writer) Close() error { return nil }

// Apply implements proxy.Writer. Chains that the change does not concern are not written.
func (w *Writer) Apply(ctx context.Context, d *proxy.Delta) (proxy.Stats, error) {
	if w.known[nat] == nil {
		return proxy.Stats{}, errors.New("apply changes: the kernel's rules are not known; call Reconcile first")
	}
	e := edit{w: w}
	e.routes(d)
	e.dispatch(d)
	if e.empty() {
		return e.stats, nil
	}
	w.expect(false)
	if err := w.restore(ctx, e.input); err != nil {
		w.known = [tableCount]map[string]known{}
		return proxy.Stats{}, err
	}
	w.expect(true)
	return e.stats, nil
}

// expect tells Watch what is to be in the kernel, or that it is being changed.
func (w *Writer) expect(valid bool) {
	var sum digest
	if valid {
		for t := range w.known {
			for name, k := range w.known[t] {
				sum += summand(table(t), name, k.digest)
			}
		}
		for _, j := range jumps {
			sum += summand(j.table, j.line(), 0)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum, w.valid = sum, valid
	w.changes++
}

// edit is one change while it is put together.
type edit struct {
	w       *Writer
	written [tableCount][]text
	deleted [tableCount][]string
	stats   proxy.Stats
}

// text is a chain that is written.
type text struct{ name, rules string }

func (e *edit) empty() bool {
	for t := range tableCount {
		if len(e.written[t])+len(e.deleted[t]) > 0 {
			return false
		}
	}
	return true
}

// put writes a chain if the kernel has it otherwise.
func (e *edit) put(c *chain) {
	k, had := e.w.known[c.table][c.name]
	if had && k.digest == c.digest {
		e.stats.Unchanged += c.rules
		return
	}
	e.stats.Added += c.rules
	e.stats.Removed += int(k.rules)
	k.digest, k.rules = c.digest, int32(c.rules)
	e.w.known[c.table][c.name] = k
	e.written[c.table] = append(e.written[c.table], text{c.name, string(c.text)})
}

// drop deletes a chain, if there is one.
func (e *edit) drop(t table, name string) {
	k, had := e.w.known[t][name]
	if !had {
		return
	}
	e.stats.Removed += int(k.rules)
	delete(e.w.known[t], name)
	e.deleted[t] = append(e.deleted[t], name)
}

// routes writes the chains of routes.
func (e *edit) routes(d *proxy.Delta) {
	type ref struct {
		t    table
		name string
	}
	released := map[ref]struct{}{}
	count := func(c *chain, n int32) {
		k := e.w.known[c.table][c.name]
		k.refs += n
		e.w.known[c.table][c.name] = k
	}
	c := &e.w.chain
	for i := range d.Frontends {
		f := &d.Frontends[i]
		e.w.rules.routeChains(c, f.Frontend, f.Old, func(c *chain) {
			count(c, -1)
			released[ref{c.table, c.name}] = struct{}{}
		})
	}
	for i := range d.Frontends {
		f := &d.Frontends[i]
		e.w.rules.routeChains(c, f.Frontend, f.New, func(c *chain) {
			e.put(c)
			count(c, 1)
		})
	}
	for r := range released {
		if e.w.known[r.t][r.name].refs <= 0 {
			e.drop(r.t, r.name)
		}
	}
}

// touched is a chain of a trie that may have to be written.
type touched struct {
	trie   int
	of     proxy.Frontend
	digits int
}

// dispatch brings the tries up to date and writes those of their chains that differ.
func (e *edit) dispatch(d *proxy.Delta) {
	rs := e.w.rules
	changed := rs.changes(&e.w.chain, d)
	all := map[string]touched{}
	note := func() {
		for _, ch := range changed {
			if ch.differs {
				rs.tries[ch.trie].near(&ch.entry.Frontend, func(n node) {
					all[rs.tries[ch.trie].name(n)] = touched{ch.trie, n.of, n.digits}
				})
			}
		}
	}
	note()
	for _, ch := range changed {
		rs.tries[ch.trie].set(ch.entry, ch.present)
	}
	note()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := all[name]
		t := &rs.tries[at.trie]
		n, ok := t.find(&at.of, at.digits)
		if !ok {
			e.drop(t.table, name)
			continue
		}
		t.render(&e.w.chain, n)
		e.put(&e.w.chain)
	}
}

// input writes what iptables-restore is to do.
func (e *edit) input(to io.Writer) error {
	for t := range tableCount {
		if len(e.written[t])+len(e.deleted[t]) == 0 {
			continue
		}
		fmt.Fprintf(to, "*%s\n", t)
		for _, c := range e.written[t] {
			fmt.Fprintf(to, ":%s - [0:0]\n", c.name)
		}
		for _, name := range e.deleted[t] {
			fmt.Fprintf(to, ":%s - [0:0]\n", name)
		}
		for _, c := range e.written[t] {
			if _, err := io.WriteString(to, c.rules); err != nil {
				return err
			}
		}
		for _, name := range e.deleted[t] {
			fmt.Fprintf(to, "-X %s\n", name)
		}
		if _, err := io.WriteString(to, "COMMIT\n"); err != nil {
			return err
		}
	}
	return nil
}

// Cleanup removes all chains of ours, and the rules that lead to them.
func (w *Writer) Cleanup(ctx context.Context) error {
	w.expect(false)
	w.known = [tableCount]map[string]known{}
	var lines [tableCount][]string
	for t := range tableCount {
		var leading, flushed, deleted []string
		err := w.read(ctx, t, reader{
			chain: func(name []byte) {
				flushed = append(flushed, ":"+string(name)+" - [0:0]")
				deleted = append(deleted, "-X "+string(name))
			},
			lead: func(line []byte) { leading = append(leading, strings.Replace(string(line), "-A", "-D", 1)) },
		})
		if err != nil {
			return err
		}
		lines[t] = slices.Concat(leading, flushed, deleted)
	}
	return w.restoreLines(ctx, lines)
}

// restoreLines runs iptables-restore with lines for each table, if there are any.
func (w *Writer) restoreLines(ctx context.Context, lines [tableCount][]string) error {
	var input strings.Builder
	for t := range tableCount {
		if len(lines[t]) > 0 {
			fmt.Fprintf(&input, "*%s\n%s\nCOMMIT\n", t, strings.Join(lines[t], "\n"))
		}
	}
	if input.Len() == 0 {
		return nil
	}
	return w.restore(ctx, func(to io.Writer) error {
		_, err := io.WriteString(to, input.String())
		return err
	})
}

// Cleanup removes what a Writer of a family ever wrote, in both variants of iptables. It is no error if
// there is no iptables.
func Cleanup(ctx context.Context, opts Options) error {
	list, err := Variants(ctx, opts)
	if errors.Is(err, ErrNoIPTables) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range list {
		if err := v.look(ctx, opts.NetNS); err != nil {
			if len(list) == 1 {
				errs = append(errs, explain(err))
			}
			continue // the kernel does not have this one
		}
		if v.Ours > 0 {
			w := &Writer{opts: opts, variant: v}
			errs = append(errs, w.Cleanup(ctx))
		}
	}
	return errors.Join(errs...)
}
