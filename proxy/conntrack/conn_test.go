package conntrack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/test/lab"
)

// The VIP and endpoint that rules of these tests translate, by family. Both
// sides of every flow are in the one namespace.
var addrs = map[proxy.Family]struct{ vip, endpoint netip.Addr }{
	proxy.IPv4: {netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("127.0.0.1")},
	proxy.IPv6: {netip.MustParseAddr("fd00:96::1"), netip.MustParseAddr("::1")},
}

const ruleset = `
table inet test {
	chain output {
		type nat hook output priority -100;
		ip daddr 10.96.0.1 meta l4proto { tcp, udp } dnat ip to 127.0.0.1
		ip6 daddr fd00:96::1 meta l4proto { tcp, udp } dnat ip6 to ::1
	}
	chain filter {
		type filter hook input priority 0;
		tcp dport 9 drop
	}
}`

func TestMain(m *testing.M) { lab.Main(m) }

func newNode(t testing.TB) (*lab.Namespace, *Conn) {
	t.Helper()
	ns := lab.NewTestNamespace(t, "address add 10.96.0.254/24 dev lo", "address add fd00:96::fe/64 dev lo nodad")
	ns.Must(t, "nft", ruleset)
	conn, err := Open(Options{NetNS: ns.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return ns, conn
}

// table lists the kernel's entries of one family as "protocol dst:dport", in order.
func table(t testing.TB, ns *lab.Namespace, family proxy.Family) []string {
	t.Helper()
	listing := ns.Must(t, "conntrack", "-L", "-f", strings.ToLower(family.String()))
	var entries []string
	for line := range strings.Lines(listing) {
		m := regexp.MustCompile(`^(\w+) .*? dst=(\S+) sport=\d+ dport=(\d+) `).FindStringSubmatch(line)
		if m != nil {
			entries = append(entries, m[1]+" "+net.JoinHostPort(m[2], m[3]))
		}
	}
	slices.Sort(entries)
	return entries
}

func always(proxy.Flow) bool { return true }

func TestDeleteStale(t *testing.T) {
	for _, family := range proxy.Families {
		t.Run(family.String(), func(t *testing.T) {
			ns, conn := newNode(t)
			vip, endpoint := addrs[family].vip, addrs[family].endpoint
			at := func(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

			// Answered and unanswered flows of UDP, and all three kinds of TCP.
			startUDPEcho(t, ns, at(endpoint, 53))
			askUDP(t, ns, at(vip, 53), true)
			askUDP(t, ns, at(vip, 123), false)
			startTCPEcho(t, ns, at(endpoint, 80))
			tcp := dial(t, ns, "tcp", at(vip, 80))
			askTCP(t, tcp)
			startDial(t, ns, at(vip, 9))
			ports := []string{"tcp 9", "tcp 80", "udp 123", "udp 53"}
			waitFor(t, func() string { return cmp.Diff(named(ports, vip), table(t, ns, family)) })

			var seen []proxy.Flow
			deleted, err := conn.DeleteStale(t.Context(), family, func(f proxy.Flow) bool {
				seen = append(seen, f)
				return f.Dst.Port() == 53 || f.Protocol == proxy.TCP
			})
			if err != nil {
				t.Fatal(err)
			}
			want := []proxy.Flow{
				{Protocol: proxy.TCP, Dst: at(vip, 9), ReplySrc: at(endpoint, 9), Unreplied: true},
				{Protocol: proxy.UDP, Dst: at(vip, 53), ReplySrc: at(endpoint, 53)},
				{Protocol: proxy.UDP, Dst: at(vip, 123), ReplySrc: at(endpoint, 123), Unreplied: true},
			}
			slices.SortFunc(seen, func(a, b proxy.Flow) int {
				if a.Protocol != b.Protocol {
					return int(a.Protocol) - int(b.Protocol)
				}
				return int(a.Dst.Port()) - int(b.Dst.Port())
			})
			if diff := cmp.Diff(want, seen, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("flows handed to stale (-want +got):\n%s", diff)
			}
			if deleted != 2 {
				t.Errorf("deleted = %d, want 2", deleted)
			}
			if diff := cmp.Diff(named([]string{"tcp 80", "udp 123"}, vip), table(t, ns, family)); diff != "" {
				t.Errorf("table after (-want +got):\n%s", diff)
			}
			askTCP(t, tcp)
		})
	}
}

// The filter is the kernel's business only: an older kernel ignores it or
// refuses it, and what is deleted is the same.
func TestDeleteStaleWithoutFilter(t *testing.T) {
	ns, conn := newNode(t)
	conn.unfiltered = true
	vip, endpoint := addrs[proxy.IPv4].vip, addrs[proxy.IPv4].endpoint
	startTCPEcho(t, ns, netip.AddrPortFrom(endpoint, 80))
	tcp := dial(t, ns, "tcp", netip.AddrPortFrom(vip, 80))
	askTCP(t, tcp)
	askUDP(t, ns, netip.AddrPortFrom(vip, 53), false)

	deleted, err := conn.DeleteStale(t.Context(), proxy.IPv4, always)
	if deleted != 1 || err != nil {
		t.Errorf("DeleteStale = %d, %v; want 1", deleted, err)
	}
	if diff := cmp.Diff(named([]string{"tcp 80"}, vip), table(t, ns, proxy.IPv4)); diff != "" {
		t.Errorf("table after (-want +got):\n%s", diff)
	}
}

// The two families share a table but are never handled together.
func TestDeleteStaleOtherFamily(t *testing.T) {
	ns, conn := newNode(t)
	askUDP(t, ns, netip.AddrPortFrom(addrs[proxy.IPv4].vip, 53), false)
	askUDP(t, ns, netip.AddrPortFrom(addrs[proxy.IPv6].vip, 53), false)

	deleted, err := conn.DeleteStale(t.Context(), proxy.IPv6, always)
	if deleted != 1 || err != nil {
		t.Errorf("DeleteStale = %d, %v; want 1", deleted, err)
	}
	if diff := cmp.Diff(named([]string{"udp 53"}, addrs[proxy.IPv4].vip), table(t, ns, proxy.IPv4)); diff != "" {
		t.Errorf("IPv4 table after (-want +got):\n%s", diff)
	}
}

// An entry in a conntrack zone is found and deleted there.
func TestDeleteStaleZone(t *testing.T) {
	ns, conn := newNode(t)
	ns.Must(t, "conntrack", "-I", "-p", "udp", "-s", "10.0.0.1", "-d", "10.0.0.2", "--sport", "1", "--dport", "2", "-t", "60", "-w", "7")
	ns.Must(t, "conntrack", "-I", "-p", "udp", "-s", "10.0.0.1", "-d", "10.0.0.2", "--sport", "1", "--dport", "2", "-t", "60")

	deleted, err := conn.DeleteStale(t.Context(), proxy.IPv4, always)
	if deleted != 2 || err != nil {
		t.Errorf("DeleteStale = %d, %v; want 2", deleted, err)
	}
	if got := table(t, ns, proxy.IPv4); len(got) != 0 {
		t.Errorf("table after: %q, want none", got)
	}
}

// Between listing and deletion an entry may give way to another with the same
// addresses and ports: that one stays.
func TestDeleteSparesSuccessor(t *testing.T) {
	ns, conn := newNode(t)
	insert := func(protocol string, sport int) {
		ns.Must(t, "conntrack", "-I", "-p", protocol, "-s", "10.0.0.1", "-d", "10.0.0.2", "--sport", strconv.Itoa(sport), "--dport", "2", "-t", "60")
	}
	id := func() string {
		out := ns.Must(t, "conntrack", "-L", "-p", "udp", "-o", "id")
		_, id, _ := strings.Cut(out, " id=")
		return strings.TrimSpace(id)
	}
	insert("udp", 1)
	first := id()
	deleted, err := conn.DeleteStale(t.Context(), proxy.IPv4, func(proxy.Flow) bool {
		// The ID depends on where the kernel keeps the entry, so others are to take that place.
		for others := 1; id() == first; others++ {
			if others > 50 {
				t.Fatal("each entry with the same addresses and ports has the same ID")
			}
			ns.Must(t, "conntrack", "-F")
			for i := range others {
				insert("udplite", 1+i)
			}
			insert("udp", 1)
		}
		return true
	})
	if deleted != 0 || err != nil {
		t.Errorf("DeleteStale = %d, %v; want 0", deleted, err)
	}
	if got := table(t, ns, proxy.IPv4); !slices.Contains(got, "udp 10.0.0.2:2") {
		t.Errorf("table after: %q, without the successor", got)
	}
}

func TestDeleteStaleCancelled(t *testing.T) {
	ns, conn := newNode(t)
	askUDP(t, ns, netip.AddrPortFrom(addrs[proxy.IPv4].vip, 53), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	deleted, err := conn.DeleteStale(ctx, proxy.IPv4, always)
	if deleted != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("DeleteStale = %d, %v; want context.Canceled", deleted, err)
	}
}

func TestOpenError(t *testing.T) {
	for _, tc := range []struct {
		errno       error
		unsupported bool
		hint        string
	}{
		{unix.EINVAL, true, "modprobe nf_conntrack_netlink"},
		{unix.EPROTONOSUPPORT, true, "CONFIG_NF_CT_NETLINK"},
		{unix.EPERM, false, "CAP_NET_ADMIN"},
	} {
		err := openError(fmt.Errorf("netlink: %w", tc.errno))
		var unsupported *UnsupportedError
		if errors.As(err, &unsupported) != tc.unsupported || !errors.Is(err, tc.errno) || !strings.Contains(err.Error(), tc.hint) {
			t.Errorf("openError(%v) = %v; want it to say %q, UnsupportedError %v", tc.errno, err, tc.hint, tc.unsupported)
		}
	}
}

func dial(t testing.TB, ns *lab.Namespace, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := ns.Dial(ctx, network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func named(protocolPorts []string, vip netip.Addr) []string {
	var entries []string
	for _, s := range protocolPorts {
		protocol, port, _ := strings.Cut(s, " ")
		entries = append(entries, protocol+" "+net.JoinHostPort(vip.String(), port))
	}
	slices.Sort(entries)
	return entries
}

func startUDPEcho(t testing.TB, ns *lab.Namespace, at netip.AddrPort) {
	t.Helper()
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:n], from)
		}
	}()
}

func startTCPEcho(t testing.TB, ns *lab.Namespace, at netip.AddrPort) {
	t.Helper()
	l, err := ns.Listen(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
}

// startDial begins a TCP connection that no one answers.
func startDial(t testing.TB, ns *lab.Namespace, to netip.AddrPort) {
	t.Helper()
	domain, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		domain, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Connect(fd, sa); err != unix.EINPROGRESS {
		t.Fatalf("connect: %v, want EINPROGRESS", err)
	}
}

func askUDP(t testing.TB, ns *lab.Namespace, to netip.AddrPort, answered bool) {
	t.Helper()
	c := dial(t, ns, "udp", to)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if answered {
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func askTCP(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until diff returns "".
func waitFor(t testing.TB, diff func() string) {
	t.Helper()
	var d string
	for range 50 {
		if d = diff(); d == "" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("it did not come to what is wanted (-want +got):\n%s", d)
}
