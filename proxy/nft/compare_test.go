package nft

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"sluice/proxy"
	"sluice/test/lab"
)

func compare(t testing.TB, n *lab.Namespace, f fixture, s *proxy.State) (found []proxy.Difference) {
	t.Helper()
	o := Options{Family: f.Family, NetNS: n.FD()}
	if err := Compare(context.Background(), o, s, func(d proxy.Difference) { found = append(found, d) }); err != nil {
		t.Fatal(err)
	}
	return found
}

// faults are single changes by another program: each returns what it ran.
var faults = []func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string{
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string { // an element goes
		set, key, _ := anElement(r, n, ip)
		return []string{"delete", "element", ip, TableName, set, "{ " + key + " }"}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string { // it leads elsewhere
		set, key, data := anElement(r, n, ip)
		if data == "" {
			return nil
		}
		other := " : drop"
		switch {
		case set == "endpoints":
			other = fmt.Sprintf(" : %v . 1", nth(f.pods, 200))
		case strings.HasSuffix(set, "-ids"):
			other = " : 7:7"
		}
		if data == other[3:] {
			return nil
		}
		return []string{fmt.Sprintf("delete element %s %s %s { %s }; add element %[1]s %[2]s %[3]s { %[4]s%[5]s }", ip, TableName, set, key, other)}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string { // a rule goes
		chain, handles := aChain(r, n, ip)
		if len(handles) == 0 {
			return nil
		}
		return []string{"delete", "rule", ip, TableName, chain, "handle", handles[r.IntN(len(handles))]}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string { // a rule comes
		chain, _ := aChain(r, n, ip)
		return []string{"insert", "rule", ip, TableName, chain, "meta", "mark", "7", "drop"}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string {
		chain, handles := aChain(r, n, ip)
		if len(handles) == 0 {
			return nil
		}
		return []string{"flush", "chain", ip, TableName, chain}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string {
		return []string{"delete", "table", ip, TableName}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string {
		return []string{"add", "table", ip, TableName, "{ flags dormant; }"}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string {
		return []string{"add chain " + ip + " " + TableName + " answers-forward { policy drop; }"}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string { // a nat chain of others comes first
		at := []string{"prerouting", "output"}[r.IntN(2)]
		tables, _ := n.Run(context.Background(), "", "nft", "list", "tables")
		before := strings.Count(tables, "other")
		return []string{fmt.Sprintf("add table %s other%d; add chain %[1]s other%[2]d c { type nat hook %s priority %d; }", ip, before, at, -100-before)}
	},
	func(r *rand.Rand, n *lab.Namespace, ip string, f fixture) []string {
		return []string{"add", "element", ip, TableName, "cluster-ips", fmt.Sprintf("{ %v }", nth(f.vips, 250))}
	},
}

// anElement finds an element of a set or map that is not dynamic.
func anElement(r *rand.Rand, n *lab.Namespace, ip string) (set, key, data string) {
	defs := setDefs(proxy.IPv4)
	for {
		id := setID(r.IntN(int(affinity)))
		out, err := n.Run(context.Background(), "", "nft", "-n", "-j", "list", map[bool]string{true: "map", false: "set"}[defs[id].verdict || defs[id].data != nil], ip, TableName, defs[id].name)
		if err != nil {
			continue
		}
		if k, v, ok := pickElement(r, out); ok && !defs[id].ranges {
			return defs[id].name, k, v
		}
	}
}

// aChain finds a chain, and its rules' handles.
func aChain(r *rand.Rand, n *lab.Namespace, ip string) (chain string, handles []string) {
	out, _ := n.Run(context.Background(), "", "nft", "-a", "list", "table", ip, TableName)
	rules := map[string][]string{}
	var names []string
	for line := range strings.SplitSeq(out, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "chain "); ok {
			chain, _, _ = strings.Cut(name, " ")
			if chain != "reject" { // a word of nft's own, which it does not take for a name
				names = append(names, chain)
			}
		} else if before, handle, ok := strings.Cut(line, " # handle "); ok && chain != "" && !strings.HasSuffix(before, "{") {
			rules[chain] = append(rules[chain], handle)
		}
	}
	chain = names[r.IntN(len(names))]
	return chain, rules[chain]
}

// Each of a hundred faults that another program puts in is found, and mended.
func TestCompareFindsFaults(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		s := proxy.NewState(f.Family, f.settings())
		for i := range 4 {
			p := f.service(fmt.Sprintf("web%d", i), i+1, f.pool(uint32(100+i), 1, 2, 3), f.pool(uint32(200+i), 1))
			s.Set(p.Name, p)
		}
		w := newWriter(t, n, f, true)
		if found := compare(t, n, f, s); len(found) != 1 || found[0].What != "table" {
			t.Errorf("in an empty kernel: %+v", found)
		}
		reconcile(t, w, s)
		if found := compare(t, n, f, s); len(found) > 0 {
			t.Fatalf("just written, and differs: %+v", found)
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		kinds := map[string]int{}
		for done := 0; done < 50; {
			args := faults[r.IntN(len(faults))](r, n, familyName(nfproto(f.Family)), f)
			if args == nil {
				continue
			}
			if out, err := n.Run(context.Background(), "", "nft", args...); err != nil {
				if strings.Contains(out+err.Error(), "busy") { // a chain that something leads to
					continue
				}
				t.Fatalf("%v: %v", args, err)
			}
			done++
			found := compare(t, n, f, s)
			if len(found) == 0 {
				t.Errorf("not found: nft %s", strings.Join(args, " "))
			}
			for _, d := range found {
				kinds[d.What]++
				if d.Want == d.Have || d.Where == "" {
					t.Errorf("says nothing: %+v", d)
				}
			}
			mended := reconcile(t, w, s)
			if len(mended.Found) != min(len(found), proxy.MaxFound) {
				t.Errorf("nft %s: %d found, and Reconcile found %+v", strings.Join(args, " "), len(found), mended.Found)
			}
			if left := compare(t, n, f, s); len(left) > 0 {
				t.Fatalf("nft %s: not mended: %+v", strings.Join(args, " "), left)
			}
		}
		t.Log(kinds)
	})
}

// The texts are those of nft.
func TestDifferences(t *testing.T) {
	f := fixtures[0]
	n := lab.NewTestNamespace(t)
	s := proxy.NewState(f.Family, f.settings())
	p := f.service("web", 1, f.pool(100, 1, 2, 3), f.pool(200, 1))
	s.Set(p.Name, p)
	reconcile(t, newWriter(t, n, f, true), s)
	n.Must(t, "nft", "delete element ip sluice service-ips { 10.96.0.1 . tcp . 80 }")
	n.Must(t, "nft", "delete element ip sluice endpoints { 10.96.0.1 . tcp . 80 . 0x1 }; add element ip sluice endpoints { 10.96.0.1 . tcp . 80 . 0x1 : 10.1.0.9 . 9 }")
	n.Must(t, "nft", "flush chain ip sluice local-policy")
	n.Must(t, "nft", "add table inet mine; add chain inet mine pre { type nat hook prerouting priority -150; }")
	var got []string
	for _, d := range compare(t, n, f, s) {
		got = append(got, fmt.Sprintf("%s %s: want %q, have %q", d.What, d.Where, d.Want, d.Have))
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		`element ip sluice service-ips: want "10.96.0.1 . tcp . 80 : goto sticky-3 comment \"default/web:http\"", have ""`,
		`element ip sluice endpoints: want "10.96.0.1 . tcp . 80 . 0x00000001 : 10.1.0.2 . 8080", have "10.96.0.1 . tcp . 80 . 0x00000001 : 10.1.0.9 . 9"`,
		`rule ip sluice local-policy: want "ip saddr 10.1.0.0/16 goto local-policy-inside", have ""`,
		`rule ip sluice local-policy: want "fib saddr type local goto local-policy-inside", have ""`,
		`rule ip sluice local-policy: want "ip daddr . meta l4proto . th dport vmap @local-policy-outside", have ""`,
		`chain ip sluice nat-prerouting: want "type nat hook prerouting priority -151", have "type nat hook prerouting priority -100, behind chain inet mine pre of priority -150"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(all)
	}
}

// pickElement takes one element out of a listing in JSON.
func pickElement(r *rand.Rand, listing string) (key, data string, ok bool) {
	var doc struct {
		Nftables []map[string]struct{ Elem []json.RawMessage }
	}
	if json.Unmarshal([]byte(listing), &doc) != nil {
		return "", "", false
	}
	var all []json.RawMessage
	for _, o := range doc.Nftables {
		all = append(all, o["set"].Elem...)
		all = append(all, o["map"].Elem...)
	}
	if len(all) == 0 {
		return "", "", false
	}
	one := all[r.IntN(len(all))]
	var pair []json.RawMessage
	if json.Unmarshal(one, &pair) == nil && len(pair) == 2 {
		return textOf(pair[0]), textOf(pair[1]), true
	}
	return textOf(one), "", true
}

// textOf is a value of nft's JSON in nft's words.
func textOf(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return wordsOf(v)
}

func wordsOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.Itoa(int(v))
	case map[string]any:
		if e, ok := v["elem"].(map[string]any); ok {
			return wordsOf(e["val"])
		}
		if list, ok := v["concat"].([]any); ok {
			var words []string
			for _, w := range list {
				words = append(words, wordsOf(w))
			}
			return strings.Join(words, " . ")
		}
		for verdict := range v {
			return verdict
		}
	}
	return ""
}
