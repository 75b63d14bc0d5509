package nft

import (
	"context"
	"log/slog"

	"sluice/proxy"
)

// Inspector looks at the rules of a family in nf_tables.
type Inspector struct{ opts Options }

// NewInspector needs of the options the family, and the namespace for what asks the kernel.
func NewInspector(o Options) *Inspector {
	o.Log, o.Peers = slog.New(slog.DiscardHandler), &Peers{}
	return &Inspector{o}
}

// Compare calls differs for everything in the kernel that is not as s wants it: for all that Reconcile would mend, one by
// one, in no order. It is a Reconcile that writes nothing, on a connection of its own, so that it can be used beside a Writer. s must
// have been planned with the kernel's slots (Writer.Slots).
func (i *Inspector) Compare(ctx context.Context, s *proxy.State, differs func(proxy.Difference)) error {
	w, err := open(i.opts)
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
