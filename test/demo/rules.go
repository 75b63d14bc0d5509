package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	blockStart = regexp.MustCompile(`(?m)^\t(map|set|chain) (\S+) \{\n`)
	elements   = regexp.MustCompile(`(?s)elements = \{(.*?)\}`)
	leadsTo    = regexp.MustCompile(`(?:goto|jump) (\S+)`)
)

// rulesFor picks from nft's listing of the table what is about connections to one
// address: the elements of maps that begin with it, the entries of a client's affinity, and the chains that these lead
// to.
func rulesFor(listing string, to netip.AddrPort, client netip.Addr) string {
	frontend := fmt.Sprintf("%s . tcp . %d", to.Addr(), to.Port())
	var out strings.Builder
	var follow []string
	bodies := map[string]string{}
	for _, at := range blockStart.FindAllStringSubmatchIndex(listing, -1) {
		kind, name := listing[at[2]:at[3]], listing[at[4]:at[5]]
		body, _, _ := strings.Cut(listing[at[1]:], "\n\t}")
		if kind == "chain" {
			bodies[name] = body
			continue
		}
		list := elements.FindStringSubmatch(body)
		if list == nil {
			continue
		}
		var found []string
		for element := range strings.SplitSeq(list[1], ",") {
			element = strings.Join(strings.Fields(element), " ")
			learned := name == "affinity" && strings.Contains(element, ". "+client.String()+" ")
			if learned || strings.HasPrefix(element, frontend+" ") || element == frontend {
				found = append(found, element)
				if target := leadsTo.FindStringSubmatch(element); target != nil {
					follow = append(follow, target[1])
				}
			}
		}
		if len(found) > 0 {
			slices.Sort(found)
			fmt.Fprintf(&out, "     %s %s\n         %s\n", kind, name, strings.Join(found, "\n         "))
		}
	}
	for i := 0; i < len(follow); i++ {
		name := follow[i]
		if slices.Contains(follow[:i], name) {
			continue
		}
		fmt.Fprintf(&out, "     chain %s\n", name)
		for line := range strings.Lines(bodies[name]) {
			fmt.Fprintf(&out, "         %s\n", strings.TrimSpace(line))
			if target := leadsTo.FindStringSubmatch(line); target != nil {
				follow = append(follow, target[1])
			}
		}
	}
	return out.String()
}
