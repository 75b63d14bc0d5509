package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/proxy/firewall"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// wall makes rules of firewalls at random, of what people write.
type wall struct {
	*rand.Rand
	names map[string]netip.Addr
}

func (w *wall) one(of ...string) string { return of[w.IntN(len(of))] }

// nft is a table with a chain at one of the hooks, and one that it may lead to.
func (w *wall) nft() string {
	hook := w.one("forward", "forward", "input", "output", "postrouting", "prerouting")
	verdict := func() string {
		v := w.one("accept", "drop", "reject", "jump sub", "goto sub", "counter", "return")
		if hook == "postrouting" && v == "reject" { // the kernel has none there
			return "drop"
		}
		return v
	}
	match := func() string {
		switch w.IntN(12) {
		case 0:
			return fmt.Sprintf(`%s %s"%s"`, w.one("iifname", "oifname"), w.one("", "!= "), w.one("eth0", lab.CNIBridge, "lo", "wg0", "e*"))
		case 1:
			return fmt.Sprintf("ip %s %s%s", w.one("saddr", "daddr"), w.one("", "!= "), w.one("10.244.0.0/16", "10.244.1.0/24", "10.96.0.0/16", "192.168.50.0/24", "192.168.50.1", w.names["pod2"].String(), w.names["outside"].String()))
		case 2:
			return fmt.Sprintf("tcp dport %s", w.one("80", "8080", "{ 22, 8000-8999 }", "!= 8080", "< 1024"))
		case 3:
			return fmt.Sprintf("ct state %s", w.one("new", "established,related", "invalid", "{ new, untracked }"))
		case 4:
			return "ct status " + w.one("dnat", "snat")
		case 5:
			return fmt.Sprintf("ip daddr %s{ %s, 172.16.0.0/12 }", w.one("", "!= "), w.one("10.244.1.0/24", "10.244.2.0/24", "192.168.50.0-192.168.50.9", "10.96.0.0/16"))
		case 6:
			return fmt.Sprintf("ip saddr . tcp dport { %s . 8080, 10.244.0.0/16 . 22-80 }", w.one("10.244.1.0/24", "192.168.50.0/24"))
		case 7:
			return "meta l4proto " + w.one("tcp", "udp", "{ tcp, udp }")
		case 8:
			return "ct original ip daddr " + w.one("10.96.0.0/16", "10.244.0.0/16")
		case 9:
			return w.one("", "meta mark set 0x1 ", "ct mark set 0x1 ") + w.one("meta", "ct") + " mark & 0xff == " + w.one("0x0", "0x1")
		case 10:
			return "fib daddr type " + w.one("local", "unicast")
		}
		return ""
	}
	rules := func(n int, verdict func() string) string {
		var b strings.Builder
		for range n {
			if w.IntN(8) == 0 {
				fmt.Fprintf(&b, "ip daddr vmap { %s : %s, 172.16.0.0/12 : drop }; ", w.one("10.244.1.0/24", "10.244.2.0/24", "192.168.50.0/24"), w.one("accept", "drop", "continue"))
				continue
			}
			fmt.Fprintf(&b, "%s %s; ", match(), verdict())
		}
		return b.String()
	}
	priority := w.IntN(20)
	if hook == "prerouting" && w.IntN(2) == 0 { // before the DNAT
		priority = -150
	}
	// Replies are let through, as they are by people: what is judged are first packets.
	return fmt.Sprintf("table %s wall { chain sub { %s }; chain base { type filter hook %s priority %d; policy %s; ct state established,related accept; %s }; }",
		w.one("ip", "inet"), rules(1+w.IntN(3), func() string { return w.one("accept", "drop", "counter", "return") }),
		hook, priority, w.one("accept", "drop"), rules(1+w.IntN(4), verdict))
}

// iptables is a list of commands.
func (w *wall) iptables() (commands []string) {
	match := func() string {
		switch w.IntN(10) {
		case 0:
			return fmt.Sprintf("%s -o %s", w.one("", "!"), w.one("eth0", lab.CNIBridge, "wg+", "e+"))
		case 1:
			return fmt.Sprintf("%s -%s %s", w.one("", "!"), w.one("s", "d"), w.one("10.244.0.0/16", "10.244.1.0/24", "10.96.0.0/16", "192.168.50.0/24", w.names["pod2"].String(), w.names["outside"].String()))
		case 2:
			return "-p tcp -m tcp --dport " + w.one("80", "8080", "8000:8999")
		case 3:
			return "-m conntrack --ctstate " + w.one("NEW", "RELATED,ESTABLISHED", "INVALID", "DNAT", "NEW,UNTRACKED")
		case 4:
			return "-p tcp -m multiport --dports " + w.one("22,8080", "80,443")
		case 5:
			return "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN"
		case 6:
			return "-m mark --mark " + w.one("0x0/0xff", "0x1/0xff")
		case 7:
			return "-m addrtype --dst-type " + w.one("LOCAL", "UNICAST")
		case 8:
			return "-m iprange --src-range " + w.one("10.244.1.1-10.244.1.99", "192.168.50.1-192.168.50.200")
		}
		return ""
	}
	hook := w.one("FORWARD", "FORWARD", "OUTPUT")
	commands = append(commands, "-N sub", "-P "+hook+" "+w.one("ACCEPT", "DROP"), "-A "+hook+" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	for range 1 + w.IntN(3) {
		commands = append(commands, "-A sub "+match()+" -j "+w.one("ACCEPT", "DROP", "RETURN", "MARK --set-xmark 0x0/0x0"))
	}
	for range 1 + w.IntN(4) {
		commands = append(commands, "-A "+hook+" "+match()+" "+w.one("-j ACCEPT", "-j DROP", "-j REJECT", "-j sub", "-g sub", "-j RETURN"))
	}
	return commands
}

// TestFirewallsOfOthers puts firewalls at random beside a Service, and sends packets: where a chain is said to drop them surely
// none arrives, and where none is named all do.
func TestFirewallsOfOthers(t *testing.T) {
	l, err := lab.New(t.Context(), lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := l.Names(proxy.IPv4)
	s := proxy.NewState(proxy.IPv4, proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: []netip.Prefix{lab.ClusterCIDRs[proxy.IPv4]}}})
	endpoints := map[string]string{"vip1": "pod2", "vip2": "far1", "vip3": "node"}
	for vip, endpoint := range endpoints {
		name := proxy.ServiceName{Namespace: "default", Name: vip}
		s.Set(name, &proxy.ServicePlan{Name: name, Frontends: []proxy.FrontendRoute{{
			Frontend: proxy.Frontend{Addr: names[vip], Port: 80, Protocol: proxy.TCP},
			Route: &proxy.Route{Port: proxy.ServicePortName{ServiceName: name, Protocol: proxy.TCP}, Masquerade: proxy.MasqueradeOffCluster,
				Pool: &proxy.Pool{Slots: []netip.AddrPort{netip.AddrPortFrom(names[endpoint], 8080)}}},
		}}})
	}
	w, err := nft.New(nft.Options{Family: proxy.IPv4, NetNS: l.Node.FD()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Reconcile(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	// The same each time; others are tried by SLUICE_TEST_SEED.
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SLUICE_TEST_SEED"), "4935162015453308812"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	random := &wall{rand.New(rand.NewPCG(seed, 2)), names}
	count := map[string]int{}
	rounds := 32
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		var rules []string
		kind := []string{"nft", "nft", iptables.NFT, iptables.Legacy}[round%4]
		if kind == "nft" {
			rules = []string{random.nft()}
		} else {
			rules = random.iptables()
		}
		for _, r := range rules {
			if kind == "nft" {
				l.Node.Must(t, "nft", r)
			} else {
				l.Node.Must(t, "sh", "-c", kind+" -w "+r)
			}
		}
		checkWall(t, l, names, endpoints, count, fmt.Sprintf("%s %s", kind, strings.Join(rules, "\n")))
		if kind == "nft" {
			l.Node.Must(t, "sh", "-c", "nft delete table ip wall 2>/dev/null || nft delete table inet wall")
		} else {
			l.Node.Must(t, "sh", "-c", fmt.Sprintf("%s -w -F; %[1]s -w -X; %[1]s -w -P FORWARD ACCEPT; %[1]s -w -P OUTPUT ACCEPT", kind))
		}
	}
	t.Logf("%v", count)
}

// checkWall compares what is judged of packets with what becomes of them.
func checkWall(t *testing.T, l *lab.Lab, names map[string]netip.Addr, endpoints map[string]string, count map[string]int, rules string) {
	fw := firewalls{netNS: l.Node.FD()}
	defer fw.close()
	type way struct {
		what   string
		blocks []proxy.Block
	}
	var ways []way
	var probes []lab.Probe
	for _, from := range []*lab.Host{l.Pods[0], l.Outside, l.Node} {
		for vip, endpoint := range endpoints {
			to := proxy.Frontend{Addr: names[vip], Port: 80, Protocol: proxy.TCP}
			p := proxy.Passage{From: proxy.Source{Addr: from.Addr(proxy.IPv4), Local: from == l.Node, Interface: "?"}, To: to,
				Endpoint: netip.AddrPortFrom(names[endpoint], 8080), OnNode: endpoint == "node"}
			blocks, err := fw.judge(t.Context(), p)
			if err != nil {
				t.Fatalf("%s: %v", rules, err)
			}
			ways = append(ways, way{what: fmt.Sprintf("%s to %s", from, endpoint), blocks: blocks})
			probes = append(probes, lab.Probe{From: from, To: netip.AddrPortFrom(to.Addr, 80), Protocol: proxy.TCP, Timeout: 400 * time.Millisecond})
		}
	}
	for i, result := range lab.SendAll(t.Context(), probes) {
		reached := result.Kind == lab.Reached
		if !reached && len(ways[i].blocks) == 0 { // a machine that is busy can be late
			probes[i].Timeout = 3 * time.Second
			reached = probes[i].Send(context.Background()).Kind == lab.Reached
		}
		switch sure := firewall.Sure(ways[i].blocks); {
		case len(ways[i].blocks) == 0 && !reached:
			t.Errorf("%s: no chain is named, and it met %v; rules:\n%s", ways[i].what, result, rules)
		case sure && reached:
			t.Errorf("%s: reached, but %+v; rules:\n%s", ways[i].what, ways[i].blocks, rules)
		case sure:
			count["blocked"]++
		case len(ways[i].blocks) == 0:
			count["passed"]++
		default:
			count["maybe"]++
		}
	}
}
