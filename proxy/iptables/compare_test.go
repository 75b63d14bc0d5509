package iptables

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/proxy"
	"sluice/test/lab"
)

func (w *Writer) compare(t testing.TB, s *proxy.State) (found []proxy.Difference) {
	t.Helper()
	if err := Compare(t.Context(), w.opts, s, func(d proxy.Difference) { found = append(found, d) }); err != nil {
		t.Fatal(err)
	}
	return found
}

// intruder makes single changes as another program.
type intruder struct {
	r *rand.Rand
	w *Writer
	n *lab.Namespace
}

// rules are those of ours in a table, by chain, as lines of iptables-save.
func (i *intruder) rules(t testing.TB, table table) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(i.n.Must(t, i.w.command("-save"), "-t", table.String())) {
		if r, ok := parseRule(strings.TrimSpace(line)); ok && (strings.HasPrefix(r.chain, prefix) || strings.HasPrefix(r.target, prefix)) {
			all[r.chain] = append(all[r.chain], strings.TrimSpace(line))
		}
	}
	return all
}

// pick chooses a chain of ours that has rules, and one of them by its number.
func (i *intruder) pick(t testing.TB, table table, wanted func(line string) bool) (chain string, number int, line string) {
	type place struct {
		chain  string
		number int
		line   string
	}
	var all []place
	for chain, rules := range i.rules(t, table) {
		for k, line := range rules {
			if strings.HasPrefix(chain, prefix) && wanted(line) {
				all = append(all, place{chain, k + 1, line})
			}
		}
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	p := all[i.r.IntN(len(all))]
	return p.chain, p.number, p.line
}

func anyRule(string) bool { return true }

// faults are single changes. Each returns the arguments of a command, behind the table.
var faults = []struct {
	name string
	make func(t testing.TB, i *intruder, table table) string
}{
	{"a rule goes", func(t testing.TB, i *intruder, table table) string {
		chain, n, _ := i.pick(t, table, anyRule)
		return fmt.Sprintf("-D %s %d", chain, n)
	}},
	{"a rule comes", func(t testing.TB, i *intruder, table table) string {
		chain, n, _ := i.pick(t, table, anyRule)
		return fmt.Sprintf("-I %s %d -m mark --mark 7 -j RETURN", chain, n)
	}},
	{"a rule is replaced", func(t testing.TB, i *intruder, table table) string {
		chain, n, _ := i.pick(t, table, anyRule)
		return fmt.Sprintf("-R %s %d -m mark --mark 7 -j RETURN", chain, n)
	}},
	{"an endpoint is another", func(t testing.TB, i *intruder, _ table) string {
		chain, n, line := i.pick(t, nat, func(line string) bool {
			return strings.Contains(line, "--to-destination") && !strings.Contains(line, "-m ")
		})
		to, _ := argument(line, " --to-destination ")
		return fmt.Sprintf("-R %s %d -p tcp -j DNAT --to-destination %s", chain, n, strings.TrimSuffix(to, "0")+"1")
	}},
	{"a chain is flushed", func(t testing.TB, i *intruder, table table) string {
		chain, _, _ := i.pick(t, table, anyRule)
		return "-F " + chain
	}},
	{"the table is flushed", func(testing.TB, *intruder, table) string { return "-F" }},
	{"a jump goes", func(t testing.TB, i *intruder, table table) string {
		j := jumps[i.r.IntN(len(jumps))]
		for j.table != table {
			j = jumps[i.r.IntN(len(jumps))]
		}
		return "-D " + j.from + " " + j.rule
	}},
	{"a jump comes", func(t testing.TB, i *intruder, table table) string {
		j := jumps[i.r.IntN(len(jumps))]
		for j.table != table {
			j = jumps[i.r.IntN(len(jumps))]
		}
		return "-A " + j.from + " " + j.rule
	}},
	{"another rule comes first", func(t testing.TB, i *intruder, _ table) string {
		return []string{"-I PREROUTING -p tcp --dport 80 -j ACCEPT", "-I OUTPUT -p tcp -j REDIRECT --to-ports 7", "-I POSTROUTING -j MASQUERADE"}[i.r.IntN(3)]
	}},
	{"a chain comes", func(t testing.TB, i *intruder, _ table) string { return fmt.Sprintf("-N %sX-%d", prefix, i.r.Uint32()) }},
}

// TestFaults puts single faults into the kernel, at random: each is found, and none is left after Reconcile.
func TestFaults(t *testing.T) {
	const each = 25 // of each variant and family
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 40, 3, proxy.Settings{ServiceCIDRs: prefixes("10.96.0.0/16", "fd00:0:60::/48")})
		w := open(t, o)
		if stats := w.reconcile(t, s); len(stats.Found) > 0 {
			t.Errorf("into an empty kernel: %v", stats.Found)
		}
		if found := w.compare(t, s); len(found) > 0 {
			t.Fatalf("nothing was changed: %v", found)
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		i := &intruder{rand.New(rand.NewPCG(seed, 1)), w, n}
		for k := range each {
			fault := faults[k%len(faults)]
			tab := []table{nat, filter}[i.r.IntN(2)]
			if slices.Contains([]string{"an endpoint is another", "another rule comes first"}, fault.name) {
				tab = nat
			}
			args := fault.make(t, i, tab)
			n.Must(t, "sh", "-c", w.command("")+" -t "+tab.String()+" "+args)
			right, err := w.readFingerprint(t.Context())
			if err != nil || right == w.print {
				t.Errorf("%s: %s: the fingerprint does not tell: %v", fault.name, args, err)
			}
			found := w.compare(t, s)
			if len(found) == 0 {
				t.Errorf("%s: -t %v %s: not found", fault.name, tab, args)
				continue
			}
			if k < len(faults) {
				t.Logf("%s: -t %v %s: %v", fault.name, tab, args, found[0])
			}
			if stats := w.reconcile(t, s); len(stats.Found) != min(len(found), proxy.MaxFound) {
				t.Errorf("%s: %s: Reconcile found %v, and Compare %v", fault.name, args, stats.Found, found)
			}
			if found := w.compare(t, s); len(found) > 0 {
				t.Fatalf("%s: -t %v %s: left after Reconcile: %v", fault.name, tab, args, found)
			}
		}
	})
}

// TestJumps: of rules of ours in a chain of the system one is there, before all that decides, however many there were.
func TestJumps(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 2, 1, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		jump := `OUTPUT -m comment --comment "sluice: Services" -j ` + servicesChain
		const text = `jump ip nat OUTPUT: not ours: -m comment --comment "sluice: Services" -j SLUICE-SERVICES`
		for _, tt := range []struct{ commands, want string }{
			{"-A " + jump, text},
			{"-I OUTPUT -p tcp -j REDIRECT --to-ports 7; -A " + jump + "; -I " + jump, text + ", behind -p tcp -j REDIRECT --to-ports 7; " + text + ", behind -p tcp -j REDIRECT --to-ports 7"},
			{"-D " + jump + "; -A " + jump, `jump ip nat OUTPUT: should be -m comment --comment "sluice: Services" -j SLUICE-SERVICES, is -m comment --comment "sluice: Services" -j SLUICE-SERVICES, behind -p tcp -j REDIRECT --to-ports 7`},
		} {
			for command := range strings.SplitSeq(tt.commands, "; ") {
				n.Must(t, "sh", "-c", w.command("")+" -t nat "+command)
			}
			var got []string
			for _, d := range w.compare(t, s) {
				got = append(got, strings.Replace(d.String(), "ip6 nat", "ip nat", 1))
			}
			if strings.Join(got, "; ") != tt.want {
				t.Errorf("%s: found\n%s\nwant\n%s", tt.commands, strings.Join(got, "\n"), tt.want)
			}
			w.reconcile(t, s)
			if found := w.compare(t, s); len(found) > 0 {
				t.Errorf("%s: left after Reconcile: %v", tt.commands, found)
			}
			if out := n.Must(t, w.command(""), "-t", "nat", "-S", "OUTPUT", "1"); !strings.Contains(out, servicesChain) || strings.Count(n.Must(t, w.command("-save"), "-t", "nat"), "-A "+jump) != 1 {
				t.Errorf("%s: the first rule is %s", tt.commands, out)
			}
		}
	})
}
