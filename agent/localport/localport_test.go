package localport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/testlog"
)

func TestMain(m *testing.M) { lab.Main(m) }

type routes = map[netip.AddrPort]*proxy.Route

var (
	v4 = netip.MustParseAddrPort("127.0.0.1:30080")
	v6 = netip.MustParseAddrPort("[::1]:30080")
)

// node is a network namespace with endpoints and a proxy in it.
type node struct {
	*lab.Namespace
	t     *testing.T
	proxy *Proxy
	log   testlog.Buffer
}

func newNode(t *testing.T, maxConns int) *node {
	t.Helper()
	n := &node{Namespace: lab.NewTestNamespace(t, "address add 10.42.0.0/24 dev lo", "address add fd00::5/128 dev lo nodad"), t: t}
	n.proxy = New(Options{
		Listen: n.Listen, Dial: n.Dial, MaxConns: maxConns,
		Log: slog.New(slog.NewTextHandler(&n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(n.proxy.Close)
	return n
}

// endpoint starts a server that says its name and sends back what it is told; when the
// client has ended, it says how many bytes that were.
func (n *node) endpoint(at string) netip.AddrPort {
	n.t.Helper()
	return n.serve(at, func(c net.Conn) {
		defer c.Close()
		fmt.Fprintf(c, "%s\n", at)
		count, err := io.Copy(c, c)
		if err == nil {
			fmt.Fprintf(c, "\n%d bytes", count)
		}
	})
}

func (n *node) serve(at string, handle func(net.Conn)) netip.AddrPort {
	n.t.Helper()
	l, err := n.Listen(n.t.Context(), "tcp", at)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go handle(c)
		}
	}()
	return netip.MustParseAddrPort(at)
}

// connect opens a connection and returns the name of the endpoint that it reached.
func (n *node) connect(to netip.AddrPort) (*net.TCPConn, string, error) {
	n.t.Helper()
	c, err := n.Dial(n.t.Context(), "tcp", to.String())
	if err != nil {
		return nil, "", err
	}
	n.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Second))
	name, err := readLine(c)
	return c.(*net.TCPConn), name, err
}

func (n *node) mustConnect(to netip.AddrPort) (*net.TCPConn, string) {
	n.t.Helper()
	c, name, err := n.connect(to)
	if err != nil {
		n.t.Fatal(err)
	}
	return c, name
}

func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			return string(line), err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

// ask checks that a connection is alive.
func (n *node) ask(c net.Conn) {
	n.t.Helper()
	if _, err := io.WriteString(c, "x"); err != nil {
		n.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		n.t.Fatal(err)
	}
}

func route(service string, slots ...netip.AddrPort) *proxy.Route {
	return &proxy.Route{
		Port: proxy.ServicePortName{ServiceName: proxy.ServiceName{Namespace: "ns", Name: service}, Protocol: proxy.TCP},
		Kind: proxy.NodePort,
		Pool: &proxy.Pool{Slots: slots},
	}
}

func TestSync(t *testing.T) {
	n := newNode(t, 0)
	a, b := n.endpoint("10.42.0.1:80"), n.endpoint("10.42.0.2:80")
	six := n.endpoint("[fd00::5]:80")
	n.proxy.Sync(routes{v4: route("web", a, b), v6: route("web", six)})

	seen := map[string]int{}
	for range 100 {
		_, name := n.mustConnect(v4)
		seen[name]++
	}
	if seen[a.String()] < 20 || seen[b.String()] < 20 {
		t.Errorf("100 connections went to %v, want about half to each endpoint", seen)
	}
	if _, name := n.mustConnect(v6); name != six.String() {
		t.Errorf("IPv6 reached %s, want %s", name, six)
	}

	// A connection goes on when its endpoint is no longer for new ones, and when the route is gone.
	var onA *net.TCPConn
	for onA == nil {
		if c, name := n.mustConnect(v4); name == a.String() {
			onA = c
		}
	}
	n.proxy.Sync(routes{v4: route("web", b)})
	for range 10 {
		if _, name := n.mustConnect(v4); name != b.String() {
			t.Errorf("reached %s, want %s", name, b)
		}
	}
	n.ask(onA)
	if _, _, err := n.connect(v6); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("IPv6 after its route went: %v, want connection refused", err)
	}
	n.proxy.Sync(routes{v4: route("web")})
	if _, _, err := n.connect(v4); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without endpoints: %v, want connection refused", err)
	}
	n.ask(onA)

	local := route("web", a)
	local.LocalPool = &proxy.Pool{Slots: []netip.AddrPort{b}}
	n.proxy.Sync(routes{v4: local})
	if _, name := n.mustConnect(v4); name != b.String() {
		t.Errorf("with a local pool: reached %s, want %s", name, b)
	}

	n.proxy.Close()
	if _, err := onA.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Close a connection reads %v, want its end", err)
	}
}

// A listener that stays wanted is never closed, not even for a moment.
func TestSyncKeepsListeners(t *testing.T) {
	n := newNode(t, 0)
	a := n.endpoint("10.42.0.1:80")
	n.proxy.Sync(routes{v4: route("web", a)})
	var syncs sync.WaitGroup
	syncs.Go(func() {
		for i := range 300 {
			n.proxy.Sync(routes{v4: route(fmt.Sprint("web", i), a)})
		}
	})
	for range 100 {
		n.mustConnect(v4)
	}
	syncs.Wait()
}

func TestHalfClose(t *testing.T) {
	n := newNode(t, 0)
	n.proxy.Sync(routes{v4: route("web", n.endpoint("10.42.0.1:80"))})
	c, _ := n.mustConnect(v4)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	go func() {
		c.Write(sent)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := string(sent) + fmt.Sprintf("\n%d bytes", len(sent)); string(got) != want {
		t.Errorf("read %d bytes ending in %q, want %d", len(got), got[max(0, len(got)-20):], len(want))
	}
}

func TestReset(t *testing.T) {
	n := newNode(t, 0)
	rude := n.serve("10.42.0.1:80", func(c net.Conn) {
		fmt.Fprint(c, "hello\n")
		c.Read(make([]byte, 1))
		reset(c)
	})
	nobody := netip.MustParseAddrPort("10.42.0.1:81")
	n.proxy.Sync(routes{v4: route("rude", rude), v6: route("nobody", nobody)})
	c, _ := n.mustConnect(v4)
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint resets the connection: read %v, want connection reset", err)
	}
	if _, _, err := n.connect(v6); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint refuses: read %v, want connection reset", err)
	}
}

func TestAffinity(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.42.0.1:80"), netip.MustParseAddrPort("10.42.0.2:80")
	r := route("web", a, b)
	r.Affinity = 10
	l := &listener{route: r}
	now := time.Unix(1000, 0)
	first := l.pick(now)
	for range 50 {
		now = now.Add(10 * time.Second) // each connection begins the time anew
		if got := l.pick(now); got != first {
			t.Fatalf("picked %s after %s, want the same for as long as connections come", got, first)
		}
	}
	seen := map[netip.AddrPort]bool{}
	for range 50 {
		now = now.Add(11 * time.Second)
		seen[l.pick(now)] = true
	}
	if len(seen) != 2 {
		t.Errorf("picked %v after affinity had ended each time, want both endpoints", seen)
	}
	gone := l.pick(now)
	other := a
	if gone == a {
		other = b
	}
	without := route("web", other)
	without.Affinity = 10
	l.setRoute(without)
	if got := l.pick(now); got != other {
		t.Errorf("picked %s, which is gone, want %s", got, other)
	}
}

func TestMaxConns(t *testing.T) {
	n := newNode(t, 2)
	n.proxy.Sync(routes{v4: route("web", n.endpoint("10.42.0.1:80"))})
	first, _ := n.mustConnect(v4)
	n.mustConnect(v4)
	if _, _, err := n.connect(v4); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("a third connection: %v, want its end", err)
	}
	n.connect(v4)
	if got := strings.Count(n.log.String(), "too many connections"); got != 1 {
		t.Errorf("that is logged %d times, want once:\n%s", got, n.log.String())
	}
	first.CloseWrite()
	if _, err := io.ReadAll(first); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, _, err := n.connect(v4); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("no connection gets through after one has ended")
}

// A port that is taken is logged once, disturbs no other and is had once it is free.
func TestBindFailure(t *testing.T) {
	n := newNode(t, 0)
	a := n.endpoint("10.42.0.1:80")
	taken, err := n.Listen(t.Context(), "tcp", v4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	wanted := routes{v4: route("web", a), v6: route("web", a)}
	for range 3 {
		n.proxy.Sync(wanted)
	}
	if got := strings.Count(n.log.String(), "service=ns/web address=127.0.0.1:30080"); got != 1 {
		t.Errorf("the taken port is logged %d times, want once:\n%s", got, n.log.String())
	}
	n.mustConnect(v6)
	if listeners, failures := n.proxy.Stats(); listeners != 1 || failures != 3 {
		t.Errorf("%d listeners after %d failures, want 1 and 3", listeners, failures)
	}
	taken.Close()
	n.proxy.Sync(wanted)
	n.mustConnect(v4)
	if listeners, failures := n.proxy.Stats(); listeners != 2 || failures != 3 {
		t.Errorf("%d listeners after %d failures, want 2 and 3", listeners, failures)
	}
}
