package nft

import (
	"log/slog"
	"net/netip"

	"sluice/proxy"
)

// Planned follows packets through the rules that a state asks for. No kernel is needed. The state must not change meanwhile.
func Planned(s *proxy.State) *Tracer {
	defs := setDefs(s.Family())
	p := &planned{state: s, rules: ruleset{family: s.Family(), defs: &defs, settings: s.Settings()}, chains: map[string]chainDef{}}
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
}

func (p *planned) close() error { return nil }

func (p *planned) chain(name string) ([]parsedRule, error) {
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
	return rules, nil
}

func (p *planned) element(k elemKey) (is elemKey, v elemValue, found bool, err error) {
	switch k.set {
	case clusterIPs:
		for a := range p.state.ClusterIPs() {
			if addrKey(clusterIPs, a) == k {
				return k, v, true, nil
			}
		}
	case hairpin:
		for a := range p.state.LocalEndpoints() {
			if addrKey(hairpin, a, a) == k {
				return k, v, true, nil
			}
		}
	case affinity, podSources: // packets add to them
	default:
		is = k
		f, _ := parseFrontend(&k)
		elementsOf(f, p.state.Route(f), func(key elemKey, value elemValue) {
			if key == k || value.end.IsValid() && inRange(&key, value.end, &k) {
				is, v, found = key, value, true
			}
		})
	}
	return is, v, found, nil
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
		return newTracer(opts.Family, &planned{}, nil), nil
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

func (l *live) element(k elemKey) (is elemKey, v elemValue, found bool, err error) {
	is, v, _, found, err = l.w.askElement(k)
	return is, v, found, err
}
