package iptables

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
)

// modelKernel is what iptables-restore makes of its input, as far as chains go.
type modelKernel map[string][]string // by "table chain"

func (m modelKernel) restore(t testing.TB, input []byte) {
	t.Helper()
	table := ""
	lines := bufio.NewScanner(bytes.NewReader(input))
	for lines.Scan() {
		line := lines.Text()
		switch words := strings.Fields(line); {
		case line == "COMMIT":
			table = ""
			m.checkTargets(t)
		case line[0] == '*':
			table = line[1:]
		case line[0] == ':':
			m[table+" "+words[0][1:]] = []string{}
		case words[0] == "-X":
			if len(m[table+" "+words[1]]) > 0 {
				t.Fatalf("%q, and the chain is not empty", line)
			}
			delete(m, table+" "+words[1])
		case words[0] == "-A":
			key := table + " " + words[1]
			if _, ok := m[key]; !ok {
				t.Fatalf("%q, and there is no such chain", line)
			}
			m[key] = append(m[key], line)
		case words[0] == "-I": // of a system's chain
		default:
			t.Fatalf("what is %q?", line)
		}
	}
}

// checkTargets checks that no rule leads to a chain that is not there.
func (m modelKernel) checkTargets(t testing.TB) {
	t.Helper()
	for chain, rules := range m {
		table, _, _ := strings.Cut(chain, " ")
		for _, rule := range rules {
			target := rule[strings.LastIndexByte(rule, ' ')+1:]
			if _, ok := m[table+" "+target]; !ok && strings.HasPrefix(target, prefix) {
				t.Fatalf("%q leads to no chain", rule)
			}
		}
	}
}

// walk sends the first packet of a connection through a chain and returns the target it ends at, empty if
// at none, and the number of rules that it passes. Where chance decides, the last endpoint is taken, which passes most.
func (m modelKernel) walk(table, chain string, src, dst netip.AddrPort, p proxy.Protocol) (target string, passed int) {
	for _, rule := range m[table+" "+chain] {
		passed++
		words := strings.Fields(rule)
		if !matches(words, src, dst, p) {
			continue
		}
		jump, to := words[len(words)-2], words[len(words)-1]
		if i := strings.Index(rule, " -j "); i >= 0 && !strings.HasPrefix(rule[i+4:], prefix) {
			if strings.HasPrefix(rule[i+4:], "MARK") {
				continue
			}
			return rule[i+4:], passed
		}
		found, more := m.walk(table, to, src, dst, p)
		passed += more
		if found != "" || jump == "-g" {
			return found, passed
		}
	}
	return "", passed
}

func matches(words []string, src, dst netip.AddrPort, p proxy.Protocol) bool {
	for i, w := range words {
		switch w {
		case "-d":
			if !netip.MustParsePrefix(words[i+1]).Contains(dst.Addr()) {
				return false
			}
		case "-s":
			if !netip.MustParsePrefix(words[i+1]).Contains(src.Addr()) {
				return false
			}
		case "-p":
			if words[i+1] != protocolName(p) {
				return false
			}
		case "--dport":
			lo, hi, ranged := strings.Cut(words[i+1], ":")
			if !ranged {
				hi = lo
			}
			l, _ := strconv.Atoi(lo)
			h, _ := strconv.Atoi(hi)
			if int(dst.Port()) < l || int(dst.Port()) > h {
				return false
			}
		case "statistic", "--update", "--src-type":
			return false
		}
	}
	return true
}

// full is what a fresh writer makes of a state.
func full(t testing.TB, s *proxy.State) modelKernel {
	t.Helper()
	w := &Writer{rules: newRuleset(s.Family(), true), chain: chain{family: s.Family()}}
	w.rules.fill(s)
	r := reconciler{w: w}
	r.compare()
	var input bytes.Buffer
	if err := r.input(&input); err != nil {
		t.Fatal(err)
	}
	m := modelKernel{}
	m.restore(t, input.Bytes())
	return m
}

// reconciled is a writer that takes the kernel to be as a state wants it.
func reconciled(s *proxy.State) *Writer {
	w := &Writer{rules: newRuleset(s.Family(), true), chain: chain{family: s.Family()}}
	w.rules.fill(s)
	r := reconciler{w: w}
	r.compare()
	w.known, w.print = r.want, r.fingerprint()
	return w
}

func (w *Writer) edit(d *proxy.Delta) *edit {
	e := &edit{w: w}
	e.routes(d)
	e.dispatch(d)
	return e
}

// randomPlan is a plan of a Service with a few of everything.
func randomPlan(rnd *rand.Rand, f proxy.Family, i int) *proxy.ServicePlan {
	name := proxy.ServiceName{Namespace: "ns", Name: "s" + strconv.Itoa(i)}
	addr := func(v4, v6 string) netip.Addr {
		if f == proxy.IPv6 {
			return netip.MustParseAddr(v6)
		}
		return netip.MustParseAddr(v4)
	}
	pool := func(n int, id uint32) *proxy.Pool {
		p := &proxy.Pool{AffinityID: id}
		for j := range n {
			p.Slots = append(p.Slots, netip.AddrPortFrom(addr(fmt.Sprintf("10.244.%d.%d", i%250, j%250), fmt.Sprintf("fd00:244::%x:%x", i, j)), 8080))
		}
		return p
	}
	sizes := []int{0, 1, 2, 3, 16, 17, 40, 260}
	plan := &proxy.ServicePlan{Name: name}
	vip := addr(fmt.Sprintf("10.96.%d.%d", i%7*16, i%251), fmt.Sprintf("fd00:96::%x:%x", i%7, i))
	if i%9 == 0 {
		vip = addr(fmt.Sprintf("10.97.0.%d", i%251), fmt.Sprintf("fd00:97::%x", i))
	}
	node := addr("192.168.50.1", "fd00:192:168:50::1")
	plan.ClusterIPs = []netip.Addr{vip}
	for port := range 1 + rnd.IntN(2) {
		sp := proxy.ServicePortName{ServiceName: name, Port: "p" + strconv.Itoa(port), Protocol: []proxy.Protocol{proxy.TCP, proxy.UDP, proxy.SCTP}[rnd.IntN(3)]}
		affinity, id := uint32(0), uint32(0)
		if rnd.IntN(4) == 0 {
			affinity, id = 60, uint32(i*4+port*2+2)
		}
		cluster := pool(sizes[rnd.IntN(len(sizes))], id)
		internal := &proxy.Route{Port: sp, Pool: cluster, Masquerade: proxy.MasqueradeOffCluster, Affinity: affinity}
		plan.Frontends = append(plan.Frontends, proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: vip, Port: uint16(80 + port), Protocol: sp.Protocol}, Route: internal})
		if rnd.IntN(2) == 0 {
			continue
		}
		external := &proxy.Route{Port: sp, Kind: proxy.NodePort, Pool: cluster, Masquerade: proxy.MasqueradeAlways, Affinity: affinity}
		if rnd.IntN(3) == 0 {
			external.LocalPool, external.Masquerade, external.WhenEmpty = pool(rnd.IntN(min(len(cluster.Slots), 3)+1), id), proxy.MasqueradeHost, proxy.Drop
		}
		plan.Frontends = append(plan.Frontends, proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: node, Port: uint16(30000 + i*2 + port), Protocol: sp.Protocol}, Route: external})
		if rnd.IntN(2) == 0 {
			limited := *external
			limited.Kind = proxy.LoadBalancerIP
			limited.SourceRanges = []netip.Prefix{netip.PrefixFrom(node, 20).Masked()}
			lb := addr(fmt.Sprintf("203.0.113.%d", i%250), fmt.Sprintf("2001:db8:13::%x", i))
			plan.Frontends = append(plan.Frontends, proxy.FrontendRoute{Frontend: proxy.Frontend{Addr: lb, Port: uint16(80 + port), Protocol: sp.Protocol}, Route: &limited})
		}
		if len(cluster.Slots) > 0 && rnd.IntN(3) == 0 {
			plan.LocalEndpoints = []netip.Addr{cluster.Slots[0].Addr()}
		}
	}
	return plan
}

// TestChangesLeadWhereAFreshStartDoes changes a state at random, and compares what the changes make of
// the kernel with what a fresh start makes.
func TestChangesLeadWhereAFreshStartDoes(t *testing.T) {
	for _, f := range proxy.Families {
		t.Run(f.String(), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, uint64(f)))
			s := proxy.NewState(f, proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectBridgeInterface, Interface: "cni0"}})
			w, kernel := reconciled(s), full(t, s)
			for round := range 80 {
				var d proxy.Delta
				for range 1 + rnd.IntN(20)*rnd.IntN(2) {
					i := rnd.IntN(100)
					plan := randomPlan(rnd, f, i)
					name := plan.Name
					if rnd.IntN(3) == 0 || round > 65 {
						plan = nil
					}
					proxy.Merge(&d, s.Set(name, plan))
				}
				var input bytes.Buffer
				e := w.edit(&d)
				if err := e.input(&input); err != nil {
					t.Fatal(err)
				}
				kernel.restore(t, input.Bytes())
				if want := full(t, s); !maps.EqualFunc(want, kernel, slices.Equal) {
					t.Fatalf("round %d (-fresh start +after changes):\n%s", round, cmp.Diff(want, kernel))
				}
				fresh := reconciled(s)
				if fresh.print != w.print {
					t.Fatalf("round %d: the sum over all chains is not that of a fresh start", round)
				}
				for table := range tableCount {
					if !maps.Equal(fresh.known[table], w.known[table]) {
						t.Fatalf("round %d: what the writer knows (-fresh start +after changes):\n%s", round,
							cmp.Diff(fresh.known[table], w.known[table], cmp.AllowUnexported(known{})))
					}
				}
			}
		})
	}
}
