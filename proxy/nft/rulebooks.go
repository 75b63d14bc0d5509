package nft

import (
	"log/slog"
	"net/netip"

	"sluice/proxy"
)

// Planned follows packets through the rules that a state asks for. No kernel is needed. The state must not change meanwhile.
func Planned(s *proxy.State) *Tracer {
	defs := setDefs(s.Family())
	p := &planned{state: s, rules: ruleset{family: s.Family(), defs: &defs, settings: s.Settings()},
		chains: map[string]chainDef{}, parsed: map[string][]parsedRule{}}
	base := map[string]kernelChain{}
	for _, c := range p.rules.chains() {
		p.chains[c.name] = c
		if c.hook != nil {
			base[c.name] = kernelChain{hook: *c.hook}
		}
	}
	return newTracer(s.Family(), p, base)
}

type planned struct {
	state  *proxy.State
	rules  ruleset
	chains map[string]chainDef
	parsed map[string][]parsedRule
	// frontend is the one that elements are the elements of, and ranges those that are ranges.
	frontend proxy.Frontend
	elements map[elemKey]elemValue
	ranges   []elemKey
}

func (p *planned) close() error { return nil }

func (p *planned) chain(name string) ([]parsedRule, error) {
	if rules, known := p.parsed[name]; known {
		return rules, nil
	}
	def, ok := p.chains[name]
	if c := parseChain(name); !ok && c.counted() {
		def.rules = p.rules.counted(c)
	}
	rules := make([]parsedRule, len(def.rules))
	for i := range def.rules {
		var err error
		if rules[i], err = def.rules[i].parsed(p.state.Family()); err != nil {
			return nil, err
		}
	}
	p.parsed[name] = rules
	return rules, nil
}

func (p *planned) element(k elemKey) (answer, error) {
	a := answer{is: k}
	switch k.set {
	case clusterIPs:
		for ip := range p.state.ClusterIPs() {
			a.found = a.found || addrKey(clusterIPs, ip) == k
		}
	case hairpin:
		for ip := range p.state.LocalEndpoints() {
			a.found = a.found || addrKey(hairpin, ip, ip) == k
		}
	case affinity, podSources: // packets add to them
	default:
		f, _ := parseFrontend(&k)
		if p.state.Route(f) == nil {
			return a, nil // as behind the DNAT; what was looked at before stays known
		}
		p.look(f)
		for i := range p.ranges {
			if inRange(&p.ranges[i], p.elements[p.ranges[i]].end, &k) {
				a.is = p.ranges[i]
			}
		}
		a.value, a.found = p.elements[a.is]
	}
	return a, nil
}

// look makes elements those of a frontend.
func (p *planned) look(f proxy.Frontend) {
	if p.frontend == f {
		return
	}
	p.frontend, p.elements, p.ranges = f, map[elemKey]elemValue{}, nil
	elementsOf(f, p.state.Route(f), func(k elemKey, v elemValue) {
		p.elements[k] = v
		if v.end.IsValid() {
			p.ranges = append(p.ranges, k)
		}
	})
}

// inRange tells whether a key is in a range: an element whose last field goes up to an address.
func inRange(first *elemKey, end netip.Addr, k *elemKey) bool {
	n := end.BitLen() / 8
	if first.set != k.set || first.n != k.n || int(k.n) < n {
		return false
	}
	head := int(k.n) - n
	from, _ := netip.AddrFromSlice(first.b[head:k.n])
	a, _ := netip.AddrFromSlice(k.b[head:k.n])
	return string(first.b[:head]) == string(k.b[:head]) && from.Compare(a) <= 0 && a.Compare(end) <= 0
}

// Live follows packets through the rules that the kernel has. It asks for elements as it needs them, on a connection of its own,
// and must be closed. Without our table no packet is touched.
func Live(opts Options) (*Tracer, error) {
	opts.Log, opts.Peers = slog.New(slog.DiscardHandler), &Peers{}
	w, err := open(opts)
	if absent(err) {
		return newTracer(opts.Family, &planned{}, nil), nil // no chain, and so nothing to look up
	}
	if err != nil {
		return nil, err
	}
	l := &live{w: w}
	t, err := w.readTable()
	if err == nil && t.exists {
		l.rules, err = w.readRules()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	if t.flags&dormant != 0 {
		t.chains = nil
	}
	return newTracer(opts.Family, l, t.chains), nil
}

type live struct {
	w     *Writer
	rules map[string][]parsedRule
}

func (l *live) close() error { return l.w.Close() }

func (l *live) chain(name string) ([]parsedRule, error) { return l.rules[name], nil }

func (l *live) element(k elemKey) (a answer, err error) {
	a.is, a.value, a.expires, a.found, err = l.w.askElement(k)
	return a, err
}
