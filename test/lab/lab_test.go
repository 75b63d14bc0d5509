package lab_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// rules is a tiny hand-written Service proxy: port 80 of the VIP goes to pod2, port
// 81 is rejected, port 82 dropped, and everything else is left alone.
const rules = `
table FAMILY try {
	chain pre { type nat hook prerouting priority -100; IP daddr VIP meta l4proto { tcp, udp, sctp } th dport 80 dnat IP to ENDPOINT:8080; }
	chain out { type nat hook output priority -100; IP daddr VIP meta l4proto { tcp, udp, sctp } th dport 80 dnat IP to ENDPOINT:8080; }
	chain post { type nat hook postrouting priority 100; ct status dnat IP saddr != CLUSTER masquerade; }
	chain forward { type filter hook forward priority 0; goto answers; }
	chain output { type filter hook output priority 0; goto answers; }
	chain answers {
		IP daddr VIP tcp dport 81 reject with tcp reset
		IP daddr VIP th dport 81 reject
		IP daddr VIP th dport 82 drop
	}
}`

func TestLab(t *testing.T) {
	start := time.Now()
	l, err := lab.New(t.Context(), lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("built in %v", time.Since(start))
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range proxy.Families {
		t.Run(f.String(), func(t *testing.T) { testProbes(t, l, f) })
	}
}

func testProbes(t *testing.T, l *lab.Lab, f proxy.Family) {
	vip := lab.ServiceCIDRs[f].Addr().Next()
	family, ip := "ip", "ip"
	endpoint := l.Pods[1].Addr(f).String()
	if f == proxy.IPv6 {
		family, ip, endpoint = "ip6", "ip6", "["+endpoint+"]"
	}
	script := strings.NewReplacer("FAMILY", family, "IP", ip, "VIP", vip.String(), "ENDPOINT", endpoint,
		"CLUSTER", lab.ClusterCIDRs[f].String()).Replace(rules)
	if _, err := l.Node.Run(t.Context(), script, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	pod, far, node, outside := l.Pods[0], l.FarPods[0], l.Node, l.Outside
	bridge := node.Addrs(f)[2]
	direct := func(h *lab.Host) netip.AddrPort { return netip.AddrPortFrom(h.Addr(f), 8081) }
	service := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(vip, port) }
	tests := []struct {
		from *lab.Host
		to   netip.AddrPort
		want string // %s is the source
		src  netip.Addr
	}{
		{pod, direct(l.Pods[1]), "pod2:8081 from %s", pod.Addr(f)},
		{pod, direct(far), "far1:8081 from %s", pod.Addr(f)},
		{pod, direct(node), "node:8081 from %s", pod.Addr(f)},
		{far, direct(pod), "pod1:8081 from %s", far.Addr(f)},
		{outside, direct(node), "node:8081 from %s", outside.Addr(f)},
		{node, direct(pod), "pod1:8081 from %s", bridge},
		{pod, service(80), "pod2:8080 from %s", pod.Addr(f)},
		{far, service(80), "pod2:8080 from %s", far.Addr(f)},
		{node, service(80), "pod2:8080 from %s", bridge},
		{outside, service(80), "pod2:8080 from %s", bridge},
		{pod, service(81), "refused", netip.Addr{}},
		{node, service(81), "refused", netip.Addr{}},
		{outside, service(81), "refused", netip.Addr{}},
		{pod, service(82), "silence", netip.Addr{}},
		{node, service(82), "silence", netip.Addr{}},
		{outside, service(82), "silence", netip.Addr{}},
		{pod, service(83), "unreachable", netip.Addr{}},
		{node, service(83), "unreachable", netip.Addr{}},
		{outside, service(83), "unreachable", netip.Addr{}},
	}
	var probes []lab.Probe
	var want []string
	for _, protocol := range []proxy.Protocol{proxy.TCP, proxy.UDP, proxy.SCTP} {
		for _, test := range tests {
			probes = append(probes, lab.Probe{From: test.from, To: test.to, Protocol: protocol, Timeout: 500 * time.Millisecond})
			if test.src.IsValid() {
				want = append(want, fmt.Sprintf(test.want, test.src))
			} else {
				want = append(want, test.want)
			}
		}
	}
	for i, got := range lab.SendAll(t.Context(), probes) {
		if got.String() != want[i] {
			t.Errorf("%s from %s to %s: got %s, want %s", probes[i].Protocol, probes[i].From, probes[i].To, got, want[i])
		}
	}
}

// TestCloseLeavesNothing counts the namespaces that this process holds.
func TestCloseLeavesNothing(t *testing.T) {
	before := openNamespaces(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := lab.New(ctx, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if during := openNamespaces(t); during <= before {
		t.Errorf("%d namespaces are open with a lab and %d without: this test counts nothing", during, before)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := lab.New(ctx, lab.Options{}); err == nil {
		t.Error("a lab was built with a context that had ended")
	}
	if after := openNamespaces(t); after != before {
		t.Errorf("%d namespaces are open after Close, %d before New", after, before)
	}
}

func openNamespaces(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, "net:[") {
			n++
		}
	}
	return n
}
