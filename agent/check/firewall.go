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
func judgeForward(variant string, f proxy.Family, fw forward, pods string) Item {
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
	from, to := false, false
	for _, rule := range fw.accept {
		from = from || strings.Contains(rule+" ", "-s "+pods+" ")
		to = to || strings.Contains(rule+" ", "-d "+pods+" ")
	}
	both := func(chain string) string {
		return fmt.Sprintf("%[1]s -I %[2]s -s %[3]s -j ACCEPT && %[1]s -I %[2]s -d %[3]s -j ACCEPT", program, chain, pods)
	}
	switch {
	case from && to:
		return ok(name, "drops, but rules accept %s", pods)
	case fw.chains["ufw-before-forward"]:
		return fail(name, fmt.Sprintf("ufw route allow from %[1]s && ufw route allow to %[1]s", pods), "ufw drops what it forwards to endpoints")
	case fw.chains["DOCKER-USER"]:
		return fail(name, both("DOCKER-USER"), "Docker's policy drops what is forwarded to endpoints")
	}
	return fail(name, both("FORWARD"), "the policy drops what is forwarded to endpoints")
}

// judgeBaseChains is about chains of nftables that drop what is forwarded. Whether a rule of them accepts it before cannot be told.
func judgeBaseChains(chains []nft.BaseChain, pods func(v6 bool) string) []Item {
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
		for _, match := range []string{"ip", "ip6"} {
			if c.Family == match || c.Family == "inet" {
				for _, side := range []string{"saddr", "daddr"} {
					lines = append(lines, fmt.Sprintf("nft insert rule %s %s %s %s %s %s accept", c.Family, c.Table, c.Name, match, side, pods(match == "ip6")))
				}
			}
		}
		items = append(items, warn(fmt.Sprintf("nftables chain %s %s %s", c.Family, c.Table, c.Name), strings.Join(lines, " && "),
			"drops what it forwards to endpoints, unless one of its rules accepts it"))
	}
	if firewalld {
		items = append(items, warn("firewalld", fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-source=%s && firewall-cmd --reload", pods(false)),
			"is on: it rejects what is forwarded to pods, unless their range is in a zone that accepts it"))
	}
	if len(items) == 0 {
		items = append(items, ok("nftables chains", "none drops what is forwarded"))
	}
	return items
}
