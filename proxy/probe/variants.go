package probe

import (
	"context"
	"slices"
	"time"

	"sluice/proxy"
	"sluice/proxy/iptables"
)

// Variant is one iptables: the programs that write through nf_tables, or those of the older interface.
type Variant struct {
	// Name is iptables.NFT or iptables.Legacy.
	Name string
	// Programs are those of each family that has some.
	Programs map[proxy.Family]iptables.Variant
	// Plain: this is what the plain name "iptables" leads to.
	Plain bool
}

// programTime bounds one run of an iptables program; it waits for the lock of the others for lockSeconds of it.
const (
	programTime = 10 * time.Second
	lockSeconds = "5"
)

// Variants finds the variants that are installed, the plain one first.
func Variants(ctx context.Context) []Variant {
	var all []Variant
	for _, f := range proxy.Families {
		ctx, cancel := context.WithTimeout(ctx, programTime)
		list, err := iptables.Variants(ctx, iptables.Options{Family: f})
		cancel()
		if err != nil {
			continue // none of this family
		}
		for i, found := range list {
			at := slices.IndexFunc(all, func(v Variant) bool { return v.Name == found.Name })
			if at < 0 {
				at = len(all)
				all = append(all, Variant{Name: found.Name, Plain: i == 0, Programs: map[proxy.Family]iptables.Variant{}})
			}
			all[at].Programs[f] = found
		}
	}
	return all
}

// List lists all rules of a family in the network namespace of the calling thread, as iptables.Variant's List does; nothing
// where the family has no program.
func (v Variant) List(ctx context.Context, f proxy.Family, to iptables.Listing) error {
	programs, ok := v.Programs[f]
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	return programs.List(ctx, 0, "", to)
}
