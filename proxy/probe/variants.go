package probe

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"sluice/proxy"
	"sluice/proxy/iptables"
)

// Variant is one iptables: the programs that write through nf_tables, or those of the older interface.
type Variant struct {
	// Name is iptables.NFT or iptables.Legacy.
	Name string
	// Restore and Save are the programs of each family; empty without one.
	Restore, Save map[proxy.Family]string
	// Version is what `iptables --version` says, without the variant.
	Version string
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
				all = append(all, Variant{Name: found.Name, Version: found.Version, Plain: i == 0,
					Restore: map[proxy.Family]string{}, Save: map[proxy.Family]string{}})
			}
			all[at].Restore[f], all[at].Save[f] = found.Restore, found.Save
		}
	}
	return all
}

// List returns the rules of a family, as iptables-save prints them, in the network namespace of the calling
// thread; nothing where the family has no program.
func (v Variant) List(ctx context.Context, f proxy.Family) (string, error) {
	if v.Save[f] == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	var rules strings.Builder
	err := iptables.Run(ctx, 0, nil, func(from io.Reader) error {
		_, err := io.Copy(&rules, from)
		return err
	}, v.Save[f])
	return rules.String(), err
}
