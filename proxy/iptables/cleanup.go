package iptables

import (
	"context"
	"errors"
	"io"
	"strings"

	"sluice/proxy/nft"
)

// Cleanup removes all chains of ours, and the rules that lead to them.
func (w *Writer) Cleanup(ctx context.Context) error {
	w.expects.begin()
	w.known = [tableCount]map[string]known{}
	var tables [tableCount]tableInput
	work := false
	for t := range tableCount {
		in := &tables[t]
		err := w.read(ctx, t, reader{
			chain: func(name []byte) { in.deleted = append(in.deleted, string(name)) },
			lead:  func(line []byte) { in.first = append(in.first, strings.Replace(string(line), "-A", "-D", 1)) },
		})
		if err != nil {
			return err
		}
		work = work || !in.empty()
	}
	if !work {
		return nil
	}
	return w.restore(ctx, func(to io.Writer) error { return writeInput(to, &tables) })
}

// Cleanup removes what a Writer of a family ever wrote, in both variants of iptables but the one that is named by keep.
// It tells whether there was anything. It is no error if there is no iptables.
func Cleanup(ctx context.Context, opts Options, keep string) (removed bool, err error) {
	list, err := Variants(ctx, opts)
	if errors.Is(err, ErrNoIPTables) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var errs []error
	for _, v := range list {
		if v.Name == keep {
			continue
		}
		err := v.look(ctx, opts)
		var incompatible *IncompatibleError
		switch {
		case errors.Is(err, errAbsent):
			continue
		case errors.As(err, &incompatible):
			// On some machines nft's rules are in tables of these names. It matters only where ours are there, too.
			if has, err := nft.ChainsExist(nft.Options{Family: opts.Family, NetNS: opts.NetNS}, prefix); err == nil && !has {
				continue
			}
			errs = append(errs, err)
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		if v.Ours > 0 {
			w := &Writer{opts: opts, variant: v}
			err := w.Cleanup(ctx)
			removed = removed || err == nil
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}
