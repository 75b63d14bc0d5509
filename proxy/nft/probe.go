package nft

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Trial is one thing that the rules are made of, and whether the kernel has it.
type Trial struct {
	// Name says what it is, for people.
	Name string
	// Config is the kernel's build option (without CONFIG_), Module the module that holds it; several are separated by blanks.
	Config, Module string
	// Optional: the rules do without it.
	Optional bool
	// Err is the kernel's answer; nil if it has it.
	Err error
}

// probeTable is the name of the table that Probe writes and removes.
const probeTable = TableName + "-try"

// tableDormant keeps base chains out of the packet path (NFT_TABLE_F_DORMANT of linux/netfilter/nf_tables.h).
const tableDormant = 1

// Probe tries everything that a Writer with these options writes. The table it does that
// in has no packets, is not the Writer's, and is removed. Where the kernel takes the whole
// at once nothing is tried singly. An error says that it could not be tried at all.
func Probe(opts Options) ([]Trial, error) {
	c, err := dial(opts.NetNS)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		first := probeTrials(opts.Family)[0].Trial
		first.Err = err
		return []Trial{first}, nil // the others cannot be tried
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return newProber(opts, c).run()
}

// prober writes parts of the rules into a table of its own.
type prober struct{ *Writer }

func newProber(opts Options, c *conn) *prober {
	p := &prober{&Writer{opts: opts, conn: c, batch: newBatch(opts.Family, &c.seq),
		refs: map[chain]int{}, pools: affinityPools{}, ranges: sourceRangeSet{}}}
	p.batch.table = probeTable
	p.rules = ruleset{family: opts.Family, defs: &p.batch.defs, settings: probeSettings(opts.Family)}
	return p
}

// trial is a Trial and what is put into the batch for it.
type trial struct {
	Trial
	write func(*prober) error
}

func (p *prober) run() ([]Trial, error) {
	reserved := p.try(ownerPersist, (*prober).everything)
	if errors.Is(reserved, unix.EPERM) {
		return nil, p.opts.explain(reserved)
	}
	whole := reserved
	if reserved != nil {
		whole = p.try(0, (*prober).everything) // kernels before 6.9 do not know these flags
	}
	var all []Trial
	explained := false
	for _, t := range probeTrials(p.opts.Family) {
		switch {
		case whole != nil:
			t.Err = p.attempt(t)
		case t.Optional:
			t.Err = reserved
		}
		all = append(all, t.Trial)
		if len(all) == 1 && t.Err != nil {
			return all, nil // the others cannot be tried
		}
		explained = explained || t.Err != nil
	}
	if whole != nil && !explained {
		all = append(all, Trial{Name: "the rules as a whole", Config: "NF_TABLES", Module: "nf_tables", Err: whole})
	}
	return all, nil
}

// attempt tries one thing.
func (p *prober) attempt(t trial) error {
	if t.write == nil {
		return p.try(ownerPersist, func(*prober) error { return nil })
	}
	return p.try(0, t.write)
}

// try commits what write puts into the batch, in a table with these flags, and removes it.
func (p *prober) try(flags uint32, write func(*prober) error) error {
	clear(p.refs)
	p.batch.newTable(probeTable, flags|tableDormant)
	if err := write(p); err != nil {
		p.batch.reset()
		return err
	}
	if err := p.conn.commit(p.batch); err != nil {
		return err
	}
	p.batch.deleteTable(probeTable)
	return p.conn.commit(p.batch)
}

// probeSettings make the chains have every kind of rule.
func probeSettings(f proxy.Family) proxy.Settings {
	cidr := netip.PrefixFrom(probeAddr(f), 24)
	return proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectBridgeInterface, Interface: "none"}, ServiceCIDRs: []netip.Prefix{cidr}}
}

// probeAddr is an address for documentation (RFC 5737, RFC 3849).
func probeAddr(f proxy.Family) netip.Addr {
	if f == proxy.IPv6 {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.MustParseAddr("192.0.2.1")
}

// probeRoutes have every kind of element and of counted chain.
func probeRoutes(f proxy.Family) []proxy.FrontendChange {
	a := probeAddr(f)
	at := func(port uint16, r *proxy.Route) proxy.FrontendChange {
		return proxy.FrontendChange{Frontend: proxy.Frontend{Addr: a, Port: port, Protocol: proxy.TCP}, New: r}
	}
	pool := &proxy.Pool{Slots: []netip.AddrPort{netip.AddrPortFrom(a, 80), netip.AddrPortFrom(a, 81)}, AffinityID: 1}
	return []proxy.FrontendChange{
		at(80, &proxy.Route{Pool: pool, LocalPool: pool, Masquerade: proxy.MasqueradeHost, Affinity: 1}),
		at(81, &proxy.Route{Pool: pool, Masquerade: proxy.MasqueradeAlways, SourceRanges: []netip.Prefix{netip.PrefixFrom(a, a.BitLen()-4)}}),
		at(82, &proxy.Route{Pool: &proxy.Pool{}, WhenEmpty: proxy.Drop}),
	}
}

// everything is all sets, all chains, and an element of each kind.
func (p *prober) everything() error {
	for id := range setCount {
		p.batch.newSet(id)
	}
	chains := p.rules.chains()
	r := reconciler{w: p.Writer, hooked: true}
	if err := r.chains(chains); err != nil {
		return err
	}
	var dead []chain
	for _, c := range probeRoutes(p.opts.Family) {
		if _, err := p.change(p.batch, &c, nil, &dead); err != nil {
			return err
		}
	}
	a := probeAddr(p.opts.Family)
	p.batch.addElement(addrKey(clusterIPs, a), elemValue{})
	p.batch.addElement(addrKey(hairpin, a, a), elemValue{})
	return nil
}
