package nft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// precedence is, by hook, the first of the nat chains that ours must stand before: which of several changes a connection's addresses
// first is all that counts, for each is changed once only. Service traffic is sluice's, so its chains stand before them, as
// kube-proxy puts its jumps before all other rules.
type precedence [unix.NF_INET_NUMHOOKS]struct {
	chain BaseChain
	found bool
}

// firstNAT is the lowest priority that the checks before a nat chain can have: connection tracking, which all nat chains must
// stand behind, is at -200 (NF_IP_PRI_CONNTRACK of linux/netfilter_ipv4.h, nf_tables_chain_type_lookup's callers).
const firstNAT = -199 + beforeDNAT

// competes tells whether a chain is one of those that change the addresses of a family's connections.
func (c *BaseChain) competes(f proxy.Family) bool {
	return c.Type == "nat" && (c.Family == "inet" || c.Family == familyName(nfproto(f))) && c.Hook < unix.NF_INET_NUMHOOKS
}

// note takes in a chain of any program. Ours stay where they are, if that is far enough before the others.
func (p *precedence) note(c BaseChain, f proxy.Family) {
	if !c.competes(f) {
		return
	}
	if c.Table == TableName {
		c.Priority++
	}
	if at := &p[c.Hook]; !at.found || c.Priority < at.chain.Priority {
		at.chain, at.found = c, true
	}
}

// before is the priority of a nat chain that is to come before another: of two with one priority the kernel asks the
// younger first.
func (c *BaseChain) before() int32 { return max(c.Priority-1, firstNAT) }

// hook is where a nat chain of ours belongs.
func (p *precedence) hook(num uint32) *hook {
	priority := int32(priorityDNAT)
	if num == unix.NF_INET_POST_ROUTING || num == unix.NF_INET_LOCAL_IN {
		priority = prioritySNAT
	}
	if other := &p[num]; other.found {
		priority = min(priority, other.chain.before())
	}
	return &hook{"nat", num, priority}
}

// before is where the checks before a nat chain belong.
func (h *hook) before() *hook { return &hook{"filter", h.num, h.priority - beforeDNAT} }

// hookNames are nft's words for the hooks (enum nf_inet_hooks).
var hookNames = [...]string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}

// String is the hook as nft prints it.
func (h hook) String() string {
	if h.typ == "" {
		return "no hook"
	}
	name := fmt.Sprint(h.num)
	if int(h.num) < len(hookNames) {
		name = hookNames[h.num]
	}
	return fmt.Sprintf("type %s hook %s priority %d", h.typ, name, h.priority)
}

// readPrecedence finds the nat chains of other programs.
func (w *Writer) readPrecedence() (p precedence, err error) {
	chains, err := w.conn.baseChains()
	for _, c := range chains {
		p.note(c, w.opts.Family)
	}
	return p, err
}

// comesFirst tells whether a chain of another program stands before ours or at its place.
func (p *precedence) comesFirst(c BaseChain, f proxy.Family) bool {
	return c.competes(f) && c.before() < p.hook(c.Hook).priority
}
