package firewall

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/proxy"
)

// table has chains of rules like "yes drop", "maybe goto sub".
type table map[string][]string

func (t table) Len(chain string) int            { return len(t[chain]) }
func (t table) Text(chain string, i int) string { return t[chain][i] }

func (t table) Judge(chain string, i int) (Ternary, Rule, error) {
	words := strings.Fields(t[chain][i] + " -")
	matched, known := map[string]Ternary{"no": No, "maybe": Maybe, "yes": Yes}[words[0]]
	if !known {
		return No, Rule{}, errors.New("unreadable")
	}
	return matched, Rule{Chain: words[2], Verdict: map[string]Verdict{
		"continue": Continue, "return": Return, "accept": Accept, "drop": Drop, "jump": Jump, "goto": Goto,
	}[words[1]], Uncertain: words[1] == "change"}, nil
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name, rules string // of the chain base; others follow behind their name and a colon
		drops       bool
		want        string
	}{
		{"nothing", "", false, ""},
		{"a policy", "", true, "base: policy drop"},
		{"accepted before", "yes accept", true, ""},
		{"maybe accepted before", "maybe accept", true, "maybe base: policy drop"},
		{"dropped", "no drop, yes drop", false, "base: yes drop"},
		{"maybe dropped, and accepted", "maybe drop, yes accept", true, "maybe base: maybe drop"},
		{"maybe dropped, then surely", "maybe drop, maybe drop, yes drop", true, "maybe base: maybe drop; base: yes drop"},
		{"return of a base chain", "yes return, yes drop", true, "base: policy drop"},
		{"a jump that comes back", "yes jump sub, yes drop; sub: no drop", false, "base: yes drop"},
		{"a jump that returns", "yes jump sub; sub: yes return, yes drop", false, ""},
		{"a jump that accepts", "yes jump sub, yes drop; sub: yes accept", false, ""},
		{"a jump that may accept", "maybe jump sub, yes drop; sub: yes accept", false, "maybe base: yes drop"},
		{"a jump that may drop", "maybe jump sub; sub: yes drop", false, "maybe sub: yes drop"},
		{"a goto does not come back", "yes goto sub, yes drop; sub: no drop", true, "base: policy drop"},
		{"a goto that may not come back", "maybe goto sub, yes drop; sub: no drop", false, "maybe base: yes drop"},
		{"a return that may be", "yes jump sub; sub: maybe return, yes drop", false, "maybe sub: yes drop"},
		{"a change that may be", "maybe change, yes drop", false, "maybe base: yes drop"},
		{"a chain that leads to itself", "yes jump base", false, ""},
	} {
		chains := table{}
		for part := range strings.SplitSeq(tt.rules, "; ") {
			name, rules, named := strings.Cut(part, ": ")
			if !named {
				name, rules = "base", part
			}
			if rules != "" {
				chains[name] = strings.Split(rules, ", ")
			}
		}
		blocks, err := Judge(chains, Base{Table: "t", Chain: "base", Drops: tt.drops})
		var got []string
		for _, b := range blocks {
			got = append(got, map[bool]string{false: "maybe "}[b.Sure]+strings.TrimPrefix(b.Chain, "t ")+": "+b.Rule)
		}
		if strings.Join(got, "; ") != tt.want || err != nil || Sure(blocks) != strings.Contains("; "+tt.want, "; base") {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	if _, err := Judge(table{"base": {"yes jump sub"}, "sub": {"?"}}, Base{Chain: "base"}); fmt.Sprint(err) != "unreadable" {
		t.Error(err)
	}
}

// TestPlaces: what chains see of interfaces. Where this node sends a packet it is the one that leads to the Service's address, also
// behind the DNAT.
func TestPlaces(t *testing.T) {
	eth0, cni0 := proxy.Interface{Name: "eth0"}, proxy.Interface{Name: "cni0"}
	for _, tt := range []struct {
		place   proxy.Place
		local   bool
		in, out proxy.Interface
	}{
		{proxy.Passing, false, eth0, cni0},
		{proxy.Arriving, false, eth0, proxy.NoInterface},
		{proxy.Sending, true, proxy.NoInterface, eth0},
		{proxy.Passing, true, proxy.NoInterface, cni0},
		{proxy.Arriving, true, cni0, proxy.NoInterface},
	} {
		p := proxy.Passage{From: proxy.Source{Local: tt.local}, In: eth0, Out: cni0, Toward: eth0}
		if at := p.At(tt.place); at.In != tt.in || at.Out != tt.out {
			t.Errorf("%+v: in %v, out %v", tt, at.In, at.Out)
		}
	}
}
