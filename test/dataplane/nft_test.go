package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

func newNFT(l *lab.Lab, f proxy.Family, o nft.Options) (subject, error) {
	o.Family, o.NetNS = f, l.Node.FD()
	return newWriterSubject(l, f, writerKind{
		open:      func() (proxy.Writer, error) { return nft.New(o) },
		leftovers: func(ctx context.Context) ([]string, error) { return nftLeftovers(ctx, l, f) },
		compare: func(ctx context.Context, s *proxy.State, differs func(proxy.Difference)) error {
			return nft.Compare(ctx, o, s, differs)
		},
		tracers: map[string]openTracer{
			"planned rules": func(_ context.Context, s *proxy.State) (proxy.Tracer, func(), error) {
				return nft.Planned(s), func() {}, nil
			},
			"live rules": func(context.Context, *proxy.State) (proxy.Tracer, func(), error) {
				t, err := nft.Live(o)
				return t, func() { t.Close() }, err
			},
		},
	})
}

// nftTable is the table's name as nft takes it.
func nftTable(f proxy.Family) string {
	if f == proxy.IPv6 {
		return "ip6 " + nft.TableName
	}
	return "ip " + nft.TableName
}

// nftLeftovers lists the elements of all sets, and the chains that a table without Services has not.
func nftLeftovers(ctx context.Context, l *lab.Lab, f proxy.Family) ([]string, error) {
	out, err := l.Node.Run(ctx, "", "nft", append([]string{"-j", "list", "table"}, strings.Fields(nftTable(f))...)...)
	if err != nil {
		return nil, err
	}
	type named struct {
		Name string            `json:"name"`
		Elem []json.RawMessage `json:"elem"`
	}
	var listing struct {
		NFTables []struct{ Set, Map, Chain *named }
	}
	if err := json.Unmarshal([]byte(out), &listing); err != nil {
		return nil, fmt.Errorf("read nft's listing: %w", err)
	}
	var left []string
	for _, o := range listing.NFTables {
		for _, set := range []*named{o.Set, o.Map} {
			if set != nil && len(set.Elem) > 0 {
				left = append(left, fmt.Sprintf("%s: %s", set.Name, set.Elem))
			}
		}
		if o.Chain != nil && strings.ContainsAny(o.Chain.Name, "0123456789") {
			left = append(left, "chain "+o.Chain.Name)
		}
	}
	return left, nil
}
