package explain

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/status"
	"sluice/proxy"
)

var first, second, stranger = netip.MustParseAddrPort("10.42.0.5:8080"), netip.MustParseAddrPort("10.42.1.5:8080"), netip.MustParseAddrPort("10.9.9.9:1")

// to is an outcome that leads to an endpoint, by steps like "chain rule".
func to(endpoint netip.AddrPort, steps ...string) proxy.Outcome {
	o := proxy.Outcome{Verdict: proxy.Forwarded, Endpoint: endpoint}
	for _, s := range steps {
		where, rule, _ := strings.Cut(s, " ")
		o.Steps = append(o.Steps, proxy.Step{Where: where, Rule: rule})
	}
	return o
}

// TestRulesOf: the rules of all ways, each once, in the order in which packets meet them, and which ways they are for.
func TestRulesOf(t *testing.T) {
	rules := rulesOf([]proxy.Outcome{
		to(first, "pre dispatch", "lb first", "post dnat", "after hairpin"),
		to(second, "pre dispatch", "lb second", "post dnat", "after masquerade"),
	})
	var b strings.Builder
	if err := status.WritePaths(&b, []status.Path{{To: []string{"x"}, Verdict: "forwarded", Rules: rules}}); err != nil {
		t.Fatal(err)
	}
	const want = `
  by
    pre    dispatch
    lb     first
    lb     second
    post   dnat
    after  hairpin
    after  masquerade
`
	if _, got, _ := strings.Cut(b.String(), "forwarded: "); got != want {
		t.Error(cmp.Diff(want, got))
	}
	if got := rules[1].To; len(got) != 1 || got[0] != first || rules[0].To != nil {
		t.Errorf("%+v", rules)
	}
}

// TestManyEndpoints: rules that are for one endpoint each are cut short.
func TestManyEndpoints(t *testing.T) {
	var outcomes []proxy.Outcome
	for i := range 20 {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(i)}), 80)
		outcomes = append(outcomes, to(a, "pre dispatch", "lb "+a.String(), "post dnat"))
	}
	var b strings.Builder
	if err := status.WritePaths(&b, []status.Path{{Rules: rulesOf(outcomes)}}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "    lb "); n != 6 || !strings.Contains(b.String(), "lb    and 15 more like it") {
		t.Error(b.String())
	}
}

func TestDifferences(t *testing.T) {
	masqueraded := func(o proxy.Outcome) proxy.Outcome { o.Masquerade = true; return o }
	remembered := func(o proxy.Outcome) proxy.Outcome { o.Affinity = true; return o }
	dropped := proxy.Outcome{Verdict: proxy.Dropped}
	type ways = []proxy.Outcome
	for _, tt := range []struct {
		name            string
		planned, actual ways
		want            string
	}{
		{"the same", ways{to(first), to(second)}, ways{to(second), to(first)}, ""},
		{"another verdict", ways{to(first)}, ways{dropped}, "the packet is dropped, and should be forwarded"},
		{"two verdicts", ways{to(first), to(second)}, ways{to(first), dropped}, "the packet is dropped or forwarded, and should be forwarded"},
		{"one is missing", ways{to(first), to(second)}, ways{to(first)}, "no connection goes to 10.42.1.5:8080"},
		{"a client that is remembered", ways{to(first), to(second)}, ways{remembered(to(first))}, ""},
		{"another endpoint", ways{to(first)}, ways{to(stranger)}, "no connection goes to 10.42.0.5:8080; some connections go to 10.9.9.9:1, which is none of the endpoints"},
		{"remembered elsewhere", ways{to(first)}, ways{remembered(to(stranger))}, "some connections go to 10.9.9.9:1, which is none of the endpoints"},
		{"source replaced", ways{to(first)}, ways{masqueraded(to(first))}, "the source is replaced on the way to 10.42.0.5:8080, and should be kept"},
		{"source kept", ways{masqueraded(to(first))}, ways{to(first)}, "the source is kept on the way to 10.42.0.5:8080, and should be replaced"},
	} {
		if got := strings.Join(differences(tt.planned, tt.actual), "; "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
