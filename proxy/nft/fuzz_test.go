package nft

import (
	"net/netip"
	"testing"

	"github.com/google/nftables/expr"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// rulesSeed are the rules of a table as netlink attributes, NFTA_RULE_EXPRESSIONS each.
func rulesSeed(f *testing.F) (all [][]byte) {
	defs := setDefs(proxy.IPv4)
	rs := ruleset{family: proxy.IPv4, defs: &defs, settings: proxy.Settings{
		Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
	}}
	chains := rs.chains()
	for _, c := range []chain{{lb, 3}, {sticky, 3}, {learn, 60}, {learnLocal, 60}} {
		chains = append(chains, chainDef{rules: rs.counted(c)})
	}
	for _, c := range chains {
		for _, r := range c.rules {
			var s stream
			list := s.nest(4) // NFTA_RULE_EXPRESSIONS
			for _, e := range r.exprs {
				b, err := expr.Marshal(nfproto(proxy.IPv4), e)
				if err != nil {
					f.Fatal(err)
				}
				s.bytes(1, b) // NFTA_LIST_ELEM
			}
			s.endNest(list)
			all = append(all, s.buf)
		}
	}
	return all
}

// FuzzRule reads rules as the kernel could send them, prints them, and follows a packet through them, as a chain of ours and as one
// of another program. Nothing of that may fail in another way than by an error.
func FuzzRule(f *testing.F) {
	for _, b := range rulesSeed(f) {
		f.Add(b)
	}
	f.Add([]byte{})
	packet := proxy.Packet{From: proxy.Source{Addr: netip.MustParseAddr("10.42.0.5"), Interface: "cni0"},
		To: proxy.Frontend{Addr: netip.MustParseAddr("10.43.0.1"), Port: 80, Protocol: proxy.TCP}}
	passage := proxy.Passage{From: packet.From, To: packet.To, Endpoint: netip.MustParseAddrPort("10.42.0.6:8080")}
	f.Fuzz(func(t *testing.T, attrs []byte) {
		rule := parseRule(attrs)
		_ = ruleText(rule, map[int]string{0: "found", 2: "found"})
		tracer := newTracer(proxy.IPv4, fuzzRules{rule}, map[string]kernelChain{
			"nat-prerouting": {hook: hook{"nat", 0, -100}}, "answers-forward": {hook: hook{"filter", 2, -90}, drop: true},
		})
		_, _ = tracer.Trace(t.Context(), packet)
		fw := &Firewall{family: proxy.IPv4, sets: map[foreignSet]*foreignElements{}}
		for i := range rule.ops {
			fw.sets[foreignSet{name: rule.ops[i].text}] = fuzzSet(attrs)
		}
		j := judge{f: fw, p: &passage, marks: &marks{}, rules: map[string][]parsedRule{"base": {rule, rule}}}
		_, _ = firewall.Judge(&j, firewall.Base{Chain: "base", Drops: true})
	})
}

// fuzzRules is one rule in each chain, and an element for each key.
type fuzzRules struct{ rule parsedRule }

func (r fuzzRules) chain(string) ([]parsedRule, error) { return []parsedRule{r.rule}, nil }
func (r fuzzRules) close() error                       { return nil }

func (r fuzzRules) element(k elemKey) (answer, error) {
	return answer{is: k, found: true, value: elemValue{n: 8, verdict: verdict(k.b[0] % 4), chain: chain{chainKind(k.b[1] % 13), 2}}}, nil
}

func fuzzSet(attrs []byte) *foreignElements {
	s := &foreignElements{}
	s.add(attrs)
	return s
}

// FuzzReadBack reads elements, chains and messages as the kernel could send them.
func FuzzReadBack(f *testing.F) {
	for _, b := range rulesSeed(f) {
		f.Add(b, uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, id uint8) {
		set := setID(id % uint8(setCount))
		defs := setDefs(proxy.IPv6)
		k, v, _ := parseElement(set, b)
		_ = defs[set].element(k, v)
		_, _ = parseFrontend(&k)
		_ = v.endpoint()
		eachElement(b, func(e []byte) { parseElement(set, e) })
		_ = parseChainState(b)
		_ = parseSet(b)
		_, _ = parseBaseChain(b)
		_ = programOf(b)
		_, _ = parseCounter(b)
		s := fuzzSet(b)
		_ = s.find(b)
		_ = eachMessage(b, func(m message) (bool, error) {
			_ = m.attrs()
			return false, ackError(m)
		})
	})
}
