package nodeaddr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// node is a namespace that is watched.
type node struct {
	*lab.Namespace
	facts chan Facts
	last  string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{facts: make(chan Facts, 1000)}
	n.Namespace = lab.NewTestNamespace(t, `
link add cable0 type veth peer name cable1
link set cable0 up
link set cable1 up
link add link cable0 name eth0 type macvlan
link add link cable0 name wlan0 type macvlan
link set eth0 up
link set wlan0 up
`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, Options{NetNS: n.FD()}, func(f Facts) { n.facts <- f })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	n.expect(t, "at first", "")
	return n
}

// ip runs the lines of a script through iproute2.
func (n *node) ip(t *testing.T, script string) {
	t.Helper()
	if err := n.IP(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

// describe lists addresses, and the primary ones with a star.
func describe(f Facts) string {
	var words []string
	for _, a := range f.Addrs {
		word := a.Interface + "/" + a.Addr.String()
		if a.Addr == f.Primary(proxy.FamilyOf(a.Addr)) {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// expect waits for facts and returns how often others came before.
func (n *node) expect(t *testing.T, when, want string) (others int) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		select {
		case f := <-n.facts:
			n.last = describe(f)
			if n.last == want {
				return others
			}
			others++
		case <-deadline:
			t.Fatalf("%s (-want +got):\n%s", when, gocmp.Diff(want, n.last))
		}
	}
}

func (n *node) expectNothing(t *testing.T, when string) {
	t.Helper()
	select {
	case f := <-n.facts:
		t.Errorf("%s: told of %q, want nothing", when, describe(f))
	case <-time.After(4 * quiet):
	}
}

func TestWatchAddresses(t *testing.T) {
	n := newNode(t)
	n.ip(t, "address add 192.168.1.5/24 dev eth0")
	n.expect(t, "one address", "eth0/192.168.1.5*")

	n.ip(t, "address add 2001:db8::5/64 dev eth0 nodad\naddress add 2001:db8:1::5/64 dev wlan0 nodad")
	n.expect(t, "IPv6", "eth0/192.168.1.5* eth0/2001:db8::5* wlan0/2001:db8:1::5")

	n.ip(t, `
address add 127.0.0.2/8 dev lo
address add 169.254.1.1/16 dev eth0
address add fe80::5/64 dev eth0 nodad
`)
	n.expectNothing(t, "loopback and link-local addresses")

	n.ip(t, "address add 203.0.113.7/32 dev lo")
	n.expect(t, "an address on lo", "eth0/192.168.1.5* eth0/2001:db8::5* lo/203.0.113.7 wlan0/2001:db8:1::5")

	n.ip(t, "address del 2001:db8::5/64 dev eth0\naddress del 203.0.113.7/32 dev lo")
	n.expect(t, "addresses removed", "eth0/192.168.1.5* wlan0/2001:db8:1::5*")

	n.ip(t, `
link add cni0 type bridge
link set cni0 up
address add 10.42.0.1/24 dev cni0
link add veth0 type veth peer name veth1
link set veth0 up
address add 10.43.0.1/24 dev veth0
`)
	n.expect(t, "CNI", "cni0/10.42.0.1 eth0/192.168.1.5* veth0/10.43.0.1 wlan0/2001:db8:1::5*")

	n.ip(t, "link del cni0\nlink del veth0\naddress add 10.0.0.1 peer 10.0.0.2 dev wlan0")
	n.expect(t, "point to point", "eth0/192.168.1.5* wlan0/10.0.0.1 wlan0/2001:db8:1::5*")
}

func TestWatchDHCPChange(t *testing.T) {
	n := newNode(t)
	n.ip(t, `
address add 192.168.1.5/24 dev eth0
route add default via 192.168.1.1 dev eth0 proto dhcp src 192.168.1.5 metric 100
`)
	n.expect(t, "first lease", "eth0/192.168.1.5*")
	n.ip(t, `
address del 192.168.1.5/24 dev eth0
address add 192.168.1.77/24 dev eth0
route add default via 192.168.1.1 dev eth0 proto dhcp src 192.168.1.77 metric 100
`)
	if others := n.expect(t, "second lease", "eth0/192.168.1.77*"); others > 1 {
		t.Errorf("told of %d states in between, want at most one", others)
	}
}

func TestWatchDefaultRoute(t *testing.T) {
	n := newNode(t)
	n.ip(t, `
address add 192.168.1.5/24 dev eth0
address add 192.168.7.5/24 dev wlan0
address add 2001:db8:1::5/64 dev eth0 nodad
address add 2001:db8:7::5/64 dev wlan0 nodad
route add default via 192.168.7.1 metric 600
route add default via 2001:db8:7::1 metric 600
`)
	n.expect(t, "one default route", "eth0/192.168.1.5 eth0/2001:db8:1::5 wlan0/192.168.7.5* wlan0/2001:db8:7::5*")

	n.ip(t, "route add 10.0.0.0/8 via 192.168.1.1\nroute add default via 192.168.1.1 metric 900\nroute add default via 192.168.1.1 table 7")
	n.expectNothing(t, "other routes")

	n.ip(t, "route add default via 192.168.1.1 metric 100\nroute add default via 2001:db8:1::1 metric 100")
	n.expect(t, "a better one", "eth0/192.168.1.5* eth0/2001:db8:1::5* wlan0/192.168.7.5 wlan0/2001:db8:7::5")

	n.ip(t, "route del default via 192.168.1.1 metric 100")
	n.expect(t, "and gone", "eth0/192.168.1.5 eth0/2001:db8:1::5* wlan0/192.168.7.5* wlan0/2001:db8:7::5")

	n.ip(t, "route replace default metric 600 nexthop via 192.168.1.1 nexthop via 192.168.7.1")
	n.expect(t, "multipath", "eth0/192.168.1.5* eth0/2001:db8:1::5* wlan0/192.168.7.5 wlan0/2001:db8:7::5")
}

func TestWatchLinkDown(t *testing.T) {
	n := newNode(t)
	n.ip(t, "address add 192.168.1.5/24 dev eth0\naddress add 192.168.7.5/24 dev wlan0")
	n.expect(t, "both up", "eth0/192.168.1.5* wlan0/192.168.7.5")
	n.ip(t, "link set eth0 down")
	n.expect(t, "one down", "wlan0/192.168.7.5*")
	n.ip(t, "link set eth0 up")
	n.expect(t, "up again", "eth0/192.168.1.5* wlan0/192.168.7.5")
	n.ip(t, "link set wlan0 down\nlink set wlan0 name wlan1\nlink set wlan1 up")
	n.expect(t, "renamed", "eth0/192.168.1.5* wlan1/192.168.7.5")
	n.ip(t, "link del eth0")
	n.expect(t, "removed", "wlan1/192.168.7.5*")
}

func TestWatchPassingIPv6Addresses(t *testing.T) {
	n := newNode(t)
	n.ip(t, "address add 2001:db8::5/64 dev eth0 nodad preferred_lft 0\naddress add 2001:db8::6/64 dev eth0 nodad")
	n.expect(t, "deprecated", "eth0/2001:db8::5 eth0/2001:db8::6*")
	n.ip(t, "address del 2001:db8::6/64 dev eth0")
	n.expect(t, "deprecated alone", "eth0/2001:db8::5")

	// The kernel adds a temporary address beside one that was autoconfigured.
	for path, value := range map[string]string{"ipv6/conf/wlan0/use_tempaddr": "2", "ipv6/conf/wlan0/accept_dad": "0"} {
		if err := n.Sysctl(path, value); err != nil {
			t.Fatal(err)
		}
	}
	n.ip(t, "address add 2001:db8:1::5/64 dev wlan0 nodad mngtmpaddr")
	deadline := time.After(5 * time.Second)
	for {
		select {
		case f := <-n.facts:
			n.last = describe(f)
			if len(f.Addrs) != 3 {
				continue
			}
			slices.SortFunc(f.Addrs[1:], func(a, b Address) int { return cmp.Compare(len(a.Addr.String()), len(b.Addr.String())) })
			if got := f.Primary(proxy.IPv6).String(); got != "2001:db8:1::5" || f.Addrs[1].Addr.String() != got {
				t.Errorf("primary = %s of %q, want 2001:db8:1::5 and a temporary address beside it", got, n.last)
			}
			return
		case <-deadline:
			t.Fatalf("no temporary address came: %q", n.last)
		}
	}
}

// An address counts once the kernel has looked for duplicates, and not at all
// if it found one.
func TestWatchDuplicateAddress(t *testing.T) {
	n := newNode(t)
	n.ip(t, `
link add eth1 type veth peer name peer
link add br0 type bridge
link set peer master br0
link add other type veth peer name eth2
link set other master br0
link set br0 up
link set peer up
link set other up
link set eth1 up
link set eth2 up
address add 2001:db8::7/64 dev eth2 nodad
`)
	n.expect(t, "first", "eth2/2001:db8::7")
	if err := n.Sysctl("ipv6/conf/eth1/accept_dad", "1"); err != nil {
		t.Fatal(err)
	}
	n.ip(t, "address add 2001:db8::7/64 dev eth1\naddress add 2001:db8::8/64 dev eth1")
	if others := n.expect(t, "after detection", "eth1/2001:db8::8 eth2/2001:db8::7"); others > 0 {
		t.Errorf("told of %d states in between, want none", others)
	}
	n.expectNothing(t, "the duplicate")
}

// A storm of changes is taken in at intervals, and its end is not missed even
// when the kernel could not hold all notifications.
func TestWatchStorm(t *testing.T) {
	n := newNode(t)
	var script strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&script, "address add 10.1.%d.%d/32 dev eth0\n", i/250%250, i%250)
		fmt.Fprintf(&script, "address del 10.1.%d.%d/32 dev eth0\n", i/250%250, i%250)
	}
	script.WriteString("address add 10.9.9.9/32 dev eth0\n")
	start := time.Now()
	n.ip(t, script.String())
	took := time.Since(start)
	others := n.expect(t, "after the storm", "eth0/10.9.9.9*")
	if most := int(took/quiet) + 2; others > most {
		t.Errorf("told of %d states in %v, want at most %d", others, took, most)
	}
	n.expectNothing(t, "when it is quiet")
	t.Logf("40,000 changes in %v: told of %d states", took, others)
}

func TestWatchStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Watch(ctx, Options{}, func(Facts) { t.Error("called after the end of its context") })
}
