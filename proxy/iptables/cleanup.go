package iptables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sluice/proxy/nft"
)

// Cleanup removes all chains of ours, and the rules that lead to them. Such a rule of another program may be one that
// iptables cannot delete by what iptables-save prints of it: our chains are empty all the same then.
func (w *Writer) Cleanup(ctx context.Context) error {
	w.expects.begin()
	w.known = [tableCount]map[string]known{}
	var ours, rest [tableCount]tableInput
	work, foreign := false, false
	for t := range tableCount {
		err := w.read(ctx, t, reader{
			chain: func(name []byte) {
				ours[t].chains = append(ours[t].chains, string(name))
				rest[t].deleted = append(rest[t].deleted, string(name))
			},
			lead: func(line []byte, own bool, _ []byte) {
				remove := strings.Replace(string(line), "-A", "-D", 1)
				if own {
					ours[t].first = append(ours[t].first, remove)
				} else {
					rest[t].first, foreign = append(rest[t].first, remove), true
				}
			},
		})
		if err != nil {
			return err
		}
		work = work || !ours[t].empty()
	}
	if !work {
		return nil
	}
	write := func(tables *[tableCount]tableInput) error {
		return w.restore(ctx, func(to io.Writer) error { return writeInput(to, tables) })
	}
	if !foreign {
		for t := range tableCount {
			rest[t].first = ours[t].first
		}
		return write(&rest)
	}
	if err := write(&ours); err != nil {
		return err
	}
	if err := write(&rest); err != nil {
		return fmt.Errorf("sluice's chains are empty and nothing of it leads to them, but another program's rule does, and cannot be removed: delete it by its number (iptables -t TABLE -L --line-numbers), and clean up again: %w", err)
	}
	return nil
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
