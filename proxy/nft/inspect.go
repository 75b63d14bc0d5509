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

// Compare is proxy.Inspector's: it is a Reconcile that writes nothing.
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
