package check

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
)

// forward is what iptables' filter table does to packets that are forwarded.
type forward struct {
	drop   bool // the policy of FORWARD
	jumps  []string
	accept []string // texts of the rules in FORWARD that accept
	chains map[string]bool
	rules  int // of all tables
}

// reader takes in what iptables-save lists.
func (fw *forward) reader() iptables.Listing {
	fw.chains = map[string]bool{}
	filter := false
	return iptables.Listing{
		Table: func(name string) { filter = name == "filter" },
		Chain: func(name, policy []byte) {
			if !filter {
				return
			}
			fw.chains[string(name)] = true
			if string(name) == "FORWARD" {
				fw.drop = string(policy) == "DROP"
			}
		},
		Rule: func(chain, line []byte) {
			fw.rules++
			if !filter || string(chain) != "FORWARD" {
				return
			}
			switch to := string(iptables.Target(line)); to {
			case "":
			case "ACCEPT":
				fw.accept = append(fw.accept, strings.TrimPrefix(string(line), "-A FORWARD "))
			default:
				fw.jumps = append(fw.jumps, to)
			}
		},
	}
}

// podChains are chains of CNI plugins that accept packets from and to pods.
var podChains = []string{"FLANNEL-FWD", "CNI-FORWARD", "cali-FORWARD", "CILIUM_FORWARD", "WEAVE-NPC"}

// judgeForward is about a policy that drops what goes on to an endpoint.
func judgeForward(variant string, f proxy.Family, fw forward, pods podRanges) Item {
	name := fmt.Sprintf("FORWARD of %s (%v)", variant, f)
	if !fw.drop {
		return ok(name, "accepts")
	}
	for _, c := range podChains {
		if slices.Contains(fw.jumps, c) {
			return ok(name, "drops, but %s accepts pods", c)
		}
	}
	program := strings.Replace(variant, "iptables", map[proxy.Family]string{proxy.IPv4: "iptables", proxy.IPv6: "ip6tables"}[f], 1)
	accepts := func(side string) bool {
		for _, p := range pods.list {
			if !slices.ContainsFunc(fw.accept, func(rule string) bool { return strings.Contains(rule+" ", side+" "+p+" ") }) {
				return false
			}
		}
		return len(pods.list) > 0
	}
	if accepts("-s") && accepts("-d") {
		return ok(name, "drops, but rules accept %s", strings.Join(pods.list, " and "))
	}
	// remedy makes a command of each side of each range.
	remedy := func(format string, sides ...string) string {
		list, hint := pods.each()
		var commands []string
		for _, p := range list {
			for _, side := range sides {
				commands = append(commands, fmt.Sprintf(format, side, p))
			}
		}
		return strings.Join(commands, " && ") + hint
	}
	var item Item
	switch {
	case fw.chains["ufw-before-forward"]:
		item = fail(name, remedy("ufw route allow %s %s", "from", "to"), "ufw drops what it forwards to endpoints")
	case fw.chains["DOCKER-USER"]:
		item = fail(name, remedy(program+" -I DOCKER-USER %s %s -j ACCEPT", "-s", "-d"), "Docker's policy drops what is forwarded to endpoints")
	default:
		item = fail(name, remedy(program+" -I FORWARD %s %s -j ACCEPT", "-s", "-d"), "the policy drops what is forwarded to endpoints")
	}
	if pods.others && len(pods.list) == 0 {
		item.Level = Warn
		item.Detail += fmt.Sprintf("; no pods of %v are known", f)
	}
	return item
}

// judgeBaseChains is about chains of nftables that drop what is forwarded. Whether a rule of them accepts it before cannot be told.
func judgeBaseChains(chains []nft.BaseChain, pods func(proxy.Family) podRanges) []Item {
	var items []Item
	firewalld := false
	for _, c := range chains {
		if c.Table == "firewalld" {
			firewalld = true
			continue
		}
		seen := c.Name == "FORWARD" && c.Table == "filter" && c.Family != "inet" // looked at as iptables
		if c.Hook != unix.NF_INET_FORWARD || !c.Drop || seen {
			continue
		}
		var lines []string
		hint := ""
		for f, match := range map[proxy.Family]string{proxy.IPv4: "ip", proxy.IPv6: "ip6"} {
			if p := pods(f); (c.Family == match || c.Family == "inet") && !(p.others && len(p.list) == 0) {
				var list []string
				list, hint = p.each()
				for _, r := range list {
					for _, side := range []string{"saddr", "daddr"} {
						lines = append(lines, fmt.Sprintf("nft insert rule %s %s %s %s %s %s accept", c.Family, c.Table, c.Name, match, side, r))
					}
				}
			}
		}
		slices.Sort(lines)
		if len(lines) == 0 {
			continue // no pods of its family
		}
		items = append(items, warn(fmt.Sprintf("nftables chain %s %s %s", c.Family, c.Table, c.Name), strings.Join(lines, " && ")+hint,
			"drops what it forwards to endpoints, unless one of its rules accepts it"))
	}
	if firewalld {
		all := podRanges{list: append(pods(proxy.IPv4).list, pods(proxy.IPv6).list...)}
		list, hint := all.each()
		items = append(items, warn("firewalld", "firewall-cmd --permanent --zone=trusted --add-source="+strings.Join(list, " --add-source=")+" && firewall-cmd --reload"+hint,
			"is on: it rejects what is forwarded to pods, unless their range is in a zone that accepts it"))
	}
	if len(items) == 0 {
		items = append(items, ok("nftables chains", "none drops what is forwarded"))
	}
	return items
}
