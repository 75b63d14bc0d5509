// Package kubeproxy finds and removes the rules that a kube-proxy left behind: it removes
// them neither when it ends nor when it is turned off. k3s leaves them too.
//
// What it removes is kube-proxy's own tables of nftables and, in iptables, the chains of its iptables
// mode. The kubelet's chains (KUBE-FIREWALL, KUBE-KUBELET-CANARY, KUBE-IPTABLES-HINT), those of a network policy
// controller (KUBE-ROUTER-, KUBE-NWPLCY- and the like) and those of CNI plugins stay.
package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// TableName is the name of kube-proxy's nftables tables.
const TableName = "kube-proxy"

// Leftover is what was found in one place.
type Leftover struct {
	// Place is "nftables" or the iptables variant.
	Place  string
	Family proxy.Family
	// Table is an nftables table, or the iptables table.
	Table string
	// Chains are kube-proxy's chains in an iptables table; nil for nftables.
	Chains []string
	// Kept are those among its chains that a foreign chain leads to, and that stay therefore.
	Kept []string
}

func (l Leftover) String() string {
	if l.Place == proxy.ModeNFTables {
		return fmt.Sprintf("nftables table %s (%v)", l.Table, l.Family)
	}
	chains := "1 chain"
	if len(l.Chains) != 1 {
		chains = fmt.Sprint(len(l.Chains), " chains")
	}
	return fmt.Sprintf("%s in table %s of %s (%v)", chains, l.Table, l.Place, l.Family)
}

// Serves tells whether these rules act on packets to Services: chains that nothing leads to, as
// the canary, do not.
func (l Leftover) Serves() bool {
	if l.Place == proxy.ModeNFTables {
		return true
	}
	for _, c := range l.Chains {
		if strings.HasPrefix(c, "KUBE-SVC-") || strings.HasPrefix(c, "KUBE-SEP-") || c == "KUBE-SERVICES" {
			return true
		}
	}
	return false
}

// programTime bounds one run of an iptables program. iptables-legacy waits lockSeconds of it for the other programs' lock.
const (
	programTime = 30 * time.Second
	lockSeconds = "10"
)

// Find looks for rules of kube-proxy in the network namespace of the calling thread.
func Find(ctx context.Context) ([]Leftover, error) {
	var found []Leftover
	err := each(ctx, func(l Leftover, _ func() error) error {
		found = append(found, l)
		return nil
	})
	return found, err
}

// Cleanup removes them and returns what it removed, and also what it found but had to keep. It goes on after an error.
func Cleanup(ctx context.Context) ([]Leftover, error) {
	var removed []Leftover
	var errs []error
	err := each(ctx, func(l Leftover, remove func() error) error {
		if err := remove(); err != nil {
			errs = append(errs, fmt.Errorf("remove kube-proxy's %v: %w", l, err))
			return nil
		}
		removed = append(removed, l)
		return nil
	})
	return removed, errors.Join(append(errs, err)...)
}

// each calls fn for all there is, with a function that removes it.
func each(ctx context.Context, fn func(l Leftover, remove func() error) error) error {
	var errs []error
	for _, f := range proxy.Families {
		exists, err := nft.TableExists(nft.Options{Family: f}, TableName)
		if err != nil {
			errs = append(errs, fmt.Errorf("look for kube-proxy's nftables table (%v): %w", f, err))
			continue
		}
		if exists {
			errs = append(errs, fn(Leftover{Place: proxy.ModeNFTables, Family: f, Table: TableName}, func() error {
				return nft.DeleteTable(nft.Options{Family: f}, TableName)
			}))
		}
	}
	for _, v := range probe.Variants(ctx) {
		for _, f := range proxy.Families {
			var l listing
			if err := v.List(ctx, f, l.reader()); err != nil {
				errs = append(errs, fmt.Errorf("look for kube-proxy's chains (%v): %w", f, err))
			}
			for _, t := range l.tables {
				p := planRemoval(t)
				if len(p.removed)+len(p.kept) == 0 {
					continue
				}
				errs = append(errs, fn(Leftover{v.Name, f, t.name, p.removed, p.kept}, func() error {
					if p.input == "" {
						return nil
					}
					return restore(ctx, v.Programs[f].Restore, p.input)
				}))
			}
		}
	}
	return errors.Join(errs...)
}

// restore changes tables as the input says.
func restore(ctx context.Context, program, input string) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	return iptables.Run(ctx, 0, func(to io.Writer) error {
		_, err := io.WriteString(to, input)
		return err
	}, nil, program, "--noflush", "-w", lockSeconds)
}
