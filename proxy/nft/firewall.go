package nft

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// Firewall judges what chains of other programs do with packets that go through ours, before and behind them. It reads a table when it first comes
// across it, and never changes one.
type Firewall struct {
	conn   *conn
	family proxy.Family
	chains []BaseChain
	// nat is, by hook, where our own chains change addresses.
	nat   map[uint32]int32
	rules map[foreignTable]map[string][]parsedRule
	sets  map[foreignSet]*foreignElements
	// intervals are the sets of tables whose elements are the ends of intervals.
	intervals map[foreignTable]map[string]bool
}

// foreignTable is a table of another program: the family's number, and its name.
type foreignTable struct {
	family byte
	name   string
}

// OpenFirewall finds the chains of other programs: without those of iptables-nft, whose rules only iptables has all words for, if
// these are judged elsewhere. It must be closed.
func OpenFirewall(opts Options, withIPTables bool) (*Firewall, error) {
	opts.Log, opts.Peers = slog.New(slog.DiscardHandler), &Peers{}
	f := &Firewall{
		family: opts.Family, rules: map[foreignTable]map[string][]parsedRule{}, sets: map[foreignSet]*foreignElements{}, intervals: map[foreignTable]map[string]bool{},
		nat: map[uint32]int32{unix.NF_INET_PRE_ROUTING: priorityDNAT, unix.NF_INET_LOCAL_OUT: priorityDNAT, unix.NF_INET_POST_ROUTING: prioritySNAT},
	}
	c, err := dial(opts.NetNS)
	if absent(err) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.conn = c
	all, err := c.baseChains()
	if err != nil {
		c.Close()
		return nil, err
	}
	for _, chain := range all {
		sees := chain.Family == "inet" || chain.Family == familyName(nfproto(f.family))
		switch {
		case !sees:
		case chain.Table == TableName:
			if chain.Type == "nat" {
				f.nat[chain.Hook] = chain.Priority
			}
		case chain.Type != "nat" && (withIPTables || !chain.ofIPTables()):
			f.chains = append(f.chains, chain)
		}
	}
	slices.SortStableFunc(f.chains, func(a, b BaseChain) int { return cmp.Compare(a.Priority, b.Priority) })
	return f, nil
}

// ofIPTables tells whether a chain is one that iptables-nft keeps, as its name and place say.
func (c *BaseChain) ofIPTables() bool {
	names := []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
	return c.Family != "inet" && slices.Contains([]string{"filter", "mangle", "raw", "security"}, c.Table) && slices.Contains(names, c.Name)
}

// Close ends the connection.
func (f *Firewall) Close() error {
	if f.conn == nil {
		return nil
	}
	return f.conn.Close()
}

// Blocks returns what ends a packet's way, in the order in which it comes there.
func (f *Firewall) Blocks(p proxy.Passage) ([]proxy.Block, error) {
	hooks := []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING}
	switch {
	case p.From.Local && p.OnNode: // it comes in again, through the loopback interface
		hooks = []uint32{unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING, unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_IN}
	case p.From.Local:
		hooks = []uint32{unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING}
	case p.OnNode:
		hooks = []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_IN}
	}
	marks := marks{packet: mark{value: p.Mark}}
	var blocks []proxy.Block
	for _, hook := range hooks {
		for _, chain := range f.chains {
			if chain.Hook != hook {
				continue
			}
			at := p.At(map[uint32]proxy.Place{unix.NF_INET_LOCAL_IN: proxy.Arriving, unix.NF_INET_LOCAL_OUT: proxy.Sending}[hook])
			j := judge{f: f, p: &at, marks: &marks, tracked: true}
			switch first := hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_OUT; {
			case p.From.Local && (hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_IN): // all has been done to it
				at = p.At(proxy.Arriving)
				at.From.Addr, j.late = netip.Addr{}, true
			case first && chain.Priority <= f.nat[hook]:
				at = at.BeforeDNAT()
				j.early, j.tracked = true, chain.Priority > priorityConntrack
			case hook == unix.NF_INET_PRE_ROUTING:
				at.Out = proxy.NoInterface // it is not routed yet
			case hook == unix.NF_INET_POST_ROUTING && chain.Priority >= f.nat[hook]:
				at.From.Addr, j.late = netip.Addr{}, true
			}
			found, err := f.judge(&j, chain)
			blocks = append(blocks, found...)
			if err != nil || firewall.Sure(found) {
				return blocks, err
			}
		}
	}
	return blocks, nil
}

// table reads the rules of a table.
func (f *Firewall) table(t foreignTable) (map[string][]parsedRule, error) {
	if rules, known := f.rules[t]; known {
		return rules, nil
	}
	var rules map[string][]parsedRule
	err := f.conn.eachInTable(t.family, t.name, unix.NFT_MSG_GETRULE, unix.NFTA_RULE_CHAIN, func() { rules = map[string][]parsedRule{} },
		func(chain string, attrs []byte) { rules[chain] = append(rules[chain], parseRule(attrs)) })
	if err != nil {
		return nil, fmt.Errorf("list the rules of table %s %s: %w", familyName(t.family), t.name, err)
	}
	f.rules[t] = rules
	return rules, nil
}

// judge is one packet in the rules of one table. It implements firewall.Table.
type judge struct {
	f     *Firewall
	p     *proxy.Passage
	table foreignTable
	rules map[string][]parsedRule
	marks *marks
	// tracked: connection tracking has seen the packet. early: it is not yet sent on to the endpoint. late: its source may be replaced.
	tracked, early, late bool
	// open: which of several verdicts the rule has cannot be told.
	open bool
	registers
}

// marks are those that rules of other programs can change.
type marks struct{ packet, connection mark }

type mark struct {
	value uint32
	// unknown: a rule may have changed it.
	unknown bool
}

// priorityConntrack is where connection tracking stands (NF_IP_PRI_CONNTRACK).
const priorityConntrack = -200

// judge has a base chain judge a packet.
func (f *Firewall) judge(j *judge, chain BaseChain) ([]proxy.Block, error) {
	t := foreignTable{nfproto(f.family), chain.Table}
	if chain.Family == "inet" {
		t.family = unix.NFPROTO_INET
	}
	rules, err := f.table(t)
	if err != nil {
		return nil, err
	}
	j.table, j.rules = t, rules
	return firewall.Judge(j,
		firewall.Base{Table: fmt.Sprintf("nftables %s %s", chain.Family, chain.Table), Chain: chain.Name, Drops: chain.Drop})
}

// Len implements firewall.Table.
func (j *judge) Len(chain string) int { return len(j.rules[chain]) }

// Text implements firewall.Table.
func (j *judge) Text(chain string, i int) string { return ruleText(j.rules[chain][i], nil) }
