package kubeproxy

import (
	"slices"
	"strings"

	"sluice/proxy/iptables"
)

// fixed are the chains that kube-proxy's iptables mode makes once. Some are in several tables.
//
// KUBE-MARK-MASQ and KUBE-POSTROUTING are among them: a kubelet makes these only before Kubernetes 1.28
// (KEP-3178, IPTablesOwnershipCleanup), and makes them again by itself; KUBE-MARK-DROP, which nothing of 1.28
// and later uses, came from the two together. A chain that a foreign chain leads to
// (CNI's portmap plugin can be told to use KUBE-MARK-MASQ) is kept, see plan.
//
// KUBE-FIREWALL, KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY are the kubelet's. kube-proxy writes the
// same KUBE-FIREWALL, which keeps strangers from addresses of the loopback, so that it stays.
var fixed = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-MARK-DROP",
	"KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY",
}

// prefixes begin the names of chains for one Service port or endpoint.
var prefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-"}

// masquerading are kept together: what one marks the other masquerades.
const (
	markMasq    = "KUBE-MARK-MASQ"
	postrouting = "KUBE-POSTROUTING"
)

// isKubeProxys tells whether kube-proxy made a chain of that name.
func isKubeProxys(chain string) bool {
	if slices.Contains(fixed, chain) {
		return true
	}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// table is one table of iptables-save's output.
type table struct {
	name    string
	builtin map[string]bool // chains with a policy
	chains  []string        // those that a user made
	rules   []rule
}

// rule is a rule in iptables-save's words.
type rule struct {
	chain  string // that it is in
	target string // of -j or -g; empty without one
	text   string // behind "-A CHAIN "
}

// listing keeps what iptables-save lists.
type listing struct{ tables []*table }

func (l *listing) reader() iptables.Listing {
	var t *table
	return iptables.Listing{
		Table: func(name string) {
			t = &table{name: name, builtin: map[string]bool{}}
			l.tables = append(l.tables, t)
		},
		Chain: func(name, policy []byte) {
			if string(policy) == "-" {
				t.chains = append(t.chains, string(name))
			} else {
				t.builtin[string(name)] = true
			}
		},
		Rule: func(chain, line []byte) {
			r := rule{chain: string(chain), target: string(iptables.Target(line)), text: string(line[len("-A ")+len(chain):])}
			r.text = strings.TrimPrefix(r.text, " ")
			t.rules = append(t.rules, r)
		},
	}
}

// plan is what iptables-restore --noflush is to do to a table so that kube-proxy's chains are gone.
type plan struct {
	input   string
	removed []string
	// kept are chains that a foreign one leads to.
	kept []string
}

// planRemoval plans it. Rules of built-in chains that lead to a chain that goes, go with it.
func planRemoval(t *table) plan {
	var p plan
	keep := map[string]bool{}
	for again := true; again; {
		again = false
		for _, r := range t.rules {
			foreign := !t.builtin[r.chain] && (!isKubeProxys(r.chain) || keep[r.chain])
			if foreign && isKubeProxys(r.target) && !keep[r.target] {
				keep[r.target], again = true, true
			}
		}
		if keep[markMasq] && slices.Contains(t.chains, postrouting) && !keep[postrouting] {
			keep[postrouting], again = true, true
		}
	}
	goes := map[string]bool{}
	for _, c := range t.chains {
		switch {
		case keep[c]:
			p.kept = append(p.kept, c)
		case isKubeProxys(c):
			goes[c] = true
			p.removed = append(p.removed, c)
		}
	}
	if len(p.removed) == 0 {
		return p
	}
	var b strings.Builder
	b.WriteString("*" + t.name + "\n")
	for _, c := range p.removed {
		b.WriteString(":" + c + " - [0:0]\n") // empties it
	}
	for _, r := range t.rules {
		if t.builtin[r.chain] && goes[r.target] {
			b.WriteString("-D " + r.chain + " " + r.text + "\n")
		}
	}
	for _, c := range p.removed {
		b.WriteString("-X " + c + "\n")
	}
	b.WriteString("COMMIT\n")
	p.input = b.String()
	return p
}
