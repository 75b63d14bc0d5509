package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/coreos/go-iptables/iptables"

	"sluice/proxy"
	"sluice/proxy/netns"
)

// Options are what a Writer can be told.
type Options struct {
	// Family of the rules. It must be set.
	Family proxy.Family
	// NetNS is a file descriptor of the network namespace to write to; 0 is the calling thread's.
	NetNS int
	// Variant is NFT or Legacy; empty is the one that the machine uses (see Detect).
	Variant string
	// Installed are the variants of the family, as Variants found them before; nil looks for them.
	Installed []Variant
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
	rules   *ruleset
	slots   map[proxy.Frontend]kernelSlots
	// known is what the kernel has, chain by chain; nil if that is not known. The texts are not kept.
	known   [tableCount]map[string]known
	print   fingerprint // of all that is known, for Watch
	size    int         // rules, at the last Reconcile
	chain   chain       // its memory is used again and again
	expects expectation
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
	opts.Log = opts.logger()
	w, err := openWriter(ctx, opts)
	if err != nil {
		return nil, err
	}
	if w.slots, err = w.readSlots(ctx); err != nil {
		// Not fatal: planning starts with fresh slots then, and Reconcile tells what is wrong.
		w.log.Debug("kernel's slots not read", "family", opts.Family, "error", err)
		w.slots = nil
	}
	return w, nil
}

// openWriter makes a writer that knows nothing of the kernel yet.
func openWriter(ctx context.Context, opts Options) (*Writer, error) {
	v, err := opts.choose(ctx)
	if err != nil {
		return nil, err
	}
	ipt, err := opts.goIPTables(v)
	if err != nil {
		return nil, err
	}
	w := &Writer{opts: opts, log: opts.Log, variant: v, rules: newRuleset(opts.Family, ipt.HasRandomFully())}
	w.chain.family = opts.Family
	return w, nil
}

// choose finds the variant that the options ask for, or the one that the machine uses.
func (o Options) choose(ctx context.Context) (Variant, error) {
	if o.Variant == "" {
		v, why, mixed, err := Detect(ctx, o)
		if err != nil {
			return Variant{}, err
		}
		o.logger().Info("iptables chosen", "family", o.Family, "reason", why)
		if mixed != "" {
			o.logger().Warn(mixed)
		}
		return v, nil
	}
	list, err := Variants(ctx, o)
	if err != nil {
		return Variant{}, err
	}
	i := slices.IndexFunc(list, func(v Variant) bool { return v.Name == o.Variant })
	if i < 0 {
		return Variant{}, fmt.Errorf("find the variant %q of %s: only %s is installed", o.Variant, Command(o.Family), list[0])
	}
	return list[i], nil
}

func (o Options) logger() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
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
	err = netns.Do(o.NetNS, func() (err error) {
		ipt, err = iptables.New(iptables.IPFamily(protocol), iptables.Path(v.Path), iptables.Timeout(o.lockSeconds()))
		return err
	})
	return ipt, err
}

// A program that hangs holds up who waits for it. One that works takes below leastTime with a few thousand rules on a small
// board, and timePerRule for each more.
const (
	leastTime   = 20 * time.Second
	timePerRule = 2 * time.Millisecond
)

// limited bounds the time of the next program.
func (w *Writer) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, leastTime+time.Duration(w.size)*timePerRule)
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
	if e.tables() == 0 {
		return e.stats, nil
	}
	w.expects.begin()
	if err := w.restore(ctx, e.input); err != nil {
		w.known = [tableCount]map[string]known{}
		return proxy.Stats{}, err
	}
	w.expects.end(w.print, e.tables())
	return e.stats, nil
}
