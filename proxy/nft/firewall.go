package nft

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Firewall judges what chains of other programs do with packets that went through ours. It reads a table when it first comes
// across it, and never changes one.
type Firewall struct {
	conn   *conn
	family proxy.Family
	chains []BaseChain
	rules  map[foreignTable]map[string][]parsedRule
	sets   map[foreignSet]*foreignElements
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
	f := &Firewall{family: opts.Family, rules: map[foreignTable]map[string][]parsedRule{}, sets: map[foreignSet]*foreignElements{}}
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
		if sees && chain.Table != TableName && chain.Type == "filter" && (withIPTables || !chain.ofIPTables()) {
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
	hooks := []uint32{unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING}
	switch {
	case p.From.Local:
		hooks = []uint32{unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING}
	case p.OnNode:
		hooks = []uint32{unix.NF_INET_LOCAL_IN}
	}
	var blocks []proxy.Block
	for _, hook := range hooks {
		for _, chain := range f.chains {
			if chain.Hook != hook || hook == unix.NF_INET_LOCAL_OUT && chain.Priority <= priorityDNAT {
				continue // what comes before the DNAT sees the Service's address
			}
			j := judge{f: f, p: &p, hook: hook, chain: chain}
			if err := j.run(); err != nil {
				return blocks, err
			}
			blocks = append(blocks, j.blocks...)
			if slices.ContainsFunc(j.blocks, func(b proxy.Block) bool { return b.Sure }) {
				return blocks, nil
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
	filter := func(s *stream) { s.text(unix.NFTA_RULE_TABLE, t.name) }
	err := f.conn.dump(t.family, unix.NFT_MSG_GETRULE, filter, func() { rules = map[string][]parsedRule{} }, func(attrs []byte) {
		var table, chain string
		eachAttr(attrs, func(typ uint16, v []byte) {
			switch typ {
			case unix.NFTA_RULE_TABLE:
				table = cString(v)
			case unix.NFTA_RULE_CHAIN:
				chain = cString(v)
			}
		})
		if table == t.name {
			rules[chain] = append(rules[chain], parseRule(attrs))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the rules of table %s %s: %w", familyName(t.family), t.name, err)
	}
	f.rules[t] = rules
	return rules, nil
}

// ternary is what is known of a condition.
type ternary uint8

const (
	no ternary = iota
	maybe
	yes
)

// judge is one base chain's judgement of a packet.
type judge struct {
	f     *Firewall
	p     *proxy.Passage
	hook  uint32
	chain BaseChain
	rules map[string][]parsedRule
	// unsure: a rule that was passed may have let the packet through.
	unsure bool
	depth  int
	blocks []proxy.Block
	registers
}

func (j *judge) run() (err error) {
	t := foreignTable{nfproto(j.f.family), j.chain.Table}
	if j.chain.Family == "inet" {
		t.family = unix.NFPROTO_INET
	}
	if j.rules, err = j.f.table(t); err != nil {
		return err
	}
	e, err := j.walk(t, j.chain.Name, yes)
	if err == nil && e == goesOn && j.chain.Drop {
		j.block(j.chain.Name, "policy drop", yes)
	}
	return err
}

// block notes a way's end. Of those that are not sure the first is enough.
func (j *judge) block(chain, rule string, matched ternary) {
	b := proxy.Block{
		Chain: fmt.Sprintf("nftables %s %s %s", j.chain.Family, j.chain.Table, chain),
		Rule:  rule, Sure: matched == yes && !j.unsure,
	}
	if b.Sure || len(j.blocks) == 0 {
		j.blocks = append(j.blocks, b)
	}
}

// walk takes the packet through a chain, which it comes to surely or maybe.
func (j *judge) walk(t foreignTable, name string, comes ternary) (end, error) {
	if j.depth++; j.depth > maxDepth {
		return accepted, nil // the kernel lets no table be so
	}
	defer func() { j.depth-- }()
	for _, rule := range j.rules[name] {
		matched, v, err := j.rule(t, &rule)
		if err != nil {
			return accepted, err
		}
		if matched = min(matched, comes); matched == no {
			continue
		}
		switch v.code {
		case codeContinue:
		case nfDrop:
			if j.block(name, ruleText(rule, nil), matched); matched == yes {
				return stopped, nil
			}
		case codeJump, codeGoto:
			e, err := j.walk(t, v.chain, matched)
			if err != nil || matched == yes && (e != goesOn || v.code == codeGoto) {
				return e, err
			}
			j.unsure = j.unsure || v.code == codeGoto && matched == maybe
		default: // accept, return, or another program decides
			if matched == yes && v.code == codeReturn {
				return goesOn, nil
			}
			if matched == yes {
				return accepted, nil
			}
			j.unsure = true
		}
	}
	return goesOn, nil
}
