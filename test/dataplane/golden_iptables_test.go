package dataplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/test/lab"
)

// TestIPTablesRuleSet compares all chains, as iptables-save prints them, with a text. Both variants must
// print the same, or every start would write everything anew.
func TestIPTablesRuleSet(t *testing.T) {
	l := newLab(t, lab.Options{})
	for _, variant := range []string{iptables.NFT, iptables.Legacy} {
		for _, f := range proxy.Families {
			t.Run(variant+"/"+f.String(), func(t *testing.T) {
				setGoldenObjects(t, startSubject(t, l, f, variant), l, f)
				listing := ""
				for _, table := range []string{"filter", "nat"} {
					out, err := l.Node.Run(t.Context(), "", iptablesCommand(f, variant)+"-save", "-t", table)
					if err != nil {
						t.Fatal(err)
					}
					listing += "*" + table + "\n" + stableSave(out)
				}
				name := strings.ReplaceAll(nftTable(f), " ", "-") + ".iptables.golden"
				compareGolden(t, name, listing)
			})
		}
	}
}

// stableSave sorts the chains of iptables-save's output, and leaves out those without rules, and what is not ours.
func stableSave(out string) string {
	chains := map[string]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "-A" && strings.Contains(line, "SLUICE-") {
			chains[words[1]] += line
		}
	}
	names := make([]string, 0, len(chains))
	for name := range chains {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s\n", chains[name])
	}
	return b.String()
}
