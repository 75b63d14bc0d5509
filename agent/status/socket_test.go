package status

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"sluice/agent/source"
	"sluice/proxy"
)

var compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// provider gives what it holds.
type provider struct {
	status    Status
	services  []Service
	endpoints []Endpoint
	diff      Diff
	counts    Counts
	err       error
}

func (p *provider) Status(context.Context) (Status, error)        { return p.status, p.err }
func (p *provider) Services(context.Context) ([]Service, error)   { return p.services, p.err }
func (p *provider) Endpoints(context.Context) ([]Endpoint, error) { return p.endpoints, p.err }
func (p *provider) Counts(context.Context) (Counts, error)        { return p.counts, p.err }
func (p *provider) Diff(context.Context) (Diff, error)            { return p.diff, p.err }
func (p *provider) Explain(_ context.Context, q Question) ([]Path, error) {
	if q.Target == "" {
		return nil, &QuestionError{"no target"}
	}
	path := Path{To: []string{q.Target}, From: q.From, Reason: q.Protocol}
	if q.Live {
		endpoint := netip.MustParseAddrPort("[fd00::2]:80")
		path.Remembered, path.Kernel = endpoint, &KernelPath{Differs: []string{}}
		path.Rules = []PathRule{{Step: proxy.Step{Where: "ip6 sluice lb-1", Rule: "dnat"}, To: []netip.AddrPort{endpoint}}}
	}
	return []Path{path}, p.err
}

// serve answers for p on a socket until the test ends.
func serve(t *testing.T, p Provider) Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "sluice.sock")
	l, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, p, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Serve the socket is still there (%v)", err)
		}
	})
	return Client{Socket: socket}
}

func TestClientGetsWhatProviderGives(t *testing.T) {
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	want := &provider{
		status: Status{
			Healthy: true, Version: "v1", PID: 7, Started: since, Mode: "nftables", Node: "n",
			NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			Objects:       map[source.Kind]int{source.Service: 2},
			Families:      []Family{{Family: proxy.IPv4, LastSync: since, LastError: "no", Repairs: 3}},
			Problems:      []source.Problem{{Where: "a.yaml", Reason: "bad", Since: since}},
		},
		services:  []Service{{Name: "web", Ports: []ServicePort{{Port: 80, Protocol: "TCP"}}}},
		endpoints: []Endpoint{{Service: "web", Address: netip.MustParseAddrPort("[fd00::1]:80"), Used: UsedPartly}},
		counts: Counts{At: since, Node: "n", Mode: "nftables", Items: []ServiceCounts{
			{Namespace: "shop", Name: "web", Connections: 1 << 60, FirstPacketBytes: 2, Endpoints: []ReadyCount{{Family: proxy.IPv6, Ready: 1, Total: 2}}},
		}},
	}
	client := serve(t, want)
	status, err := client.Status(t.Context())
	if diff := cmp.Diff(want.status, status, compareAddrs, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("Status: error %v (-want +got):\n%s", err, diff)
	}
	services, err := client.Services(t.Context())
	if diff := cmp.Diff(want.services, services); diff != "" || err != nil {
		t.Errorf("Services: error %v (-want +got):\n%s", err, diff)
	}
	endpoints, err := client.Endpoints(t.Context())
	if diff := cmp.Diff(want.endpoints, endpoints, compareAddrs); diff != "" || err != nil {
		t.Errorf("Endpoints: error %v (-want +got):\n%s", err, diff)
	}
	counts, err := client.Counts(t.Context())
	if diff := cmp.Diff(want.counts, counts); diff != "" || err != nil {
		t.Errorf("Counts: error %v (-want +got):\n%s", err, diff)
	}
}

func TestClientSaysWhatTheProviderSays(t *testing.T) {
	client := serve(t, &provider{err: errors.New("the loop has ended")})
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "the loop has ended") {
		t.Errorf("got %v", err)
	}
}

// After an upgrade the agent may still be the older one.
func TestClientOfAnotherVersion(t *testing.T) {
	client := serve(t, &provider{})
	var doc Counts
	if err := client.get(t.Context(), "/not-yet", &doc); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("got %v", err)
	}
}

func TestClientWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	leaveSocket(t, stale)
	for _, socket := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "no", "directory"), stale} {
		_, err := Client{Socket: socket}.Status(t.Context())
		if running, ok := errors.AsType[*NotRunningError](err); !ok || running.Socket != socket {
			t.Errorf("%s: got %v", socket, err)
		}
	}
}

// leaveSocket makes a socket that nobody listens on, as a killed process leaves it.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Who may not ask is told which group may.
func TestGroupOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	group, err := user.LookupGroupId(strconv.Itoa(os.Getegid()))
	if err != nil {
		t.Skip("this user's group has no name:", err)
	}
	if got, want := groupOf(path), ", or as a user of the group "+group.Name; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := groupOf(path); got != "" {
		t.Errorf("of a socket for its owner alone: %q", got)
	}
}

func TestClientExplains(t *testing.T) {
	c := serve(t, &provider{})
	got, err := c.Explain(t.Context(), Question{Target: "[fd00::1]:80", From: "a b&c", Protocol: "udp", Live: true})
	want := []Path{{
		To: []string{"[fd00::1]:80"}, From: "a b&c", Reason: "udp", Remembered: netip.MustParseAddrPort("[fd00::2]:80"),
		Rules:  []PathRule{{Step: proxy.Step{Where: "ip6 sluice lb-1", Rule: "dnat"}, To: []netip.AddrPort{netip.MustParseAddrPort("[fd00::2]:80")}}},
		Kernel: &KernelPath{Differs: []string{}},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = c.Explain(t.Context(), Question{})
	if q, ok := errors.AsType[*QuestionError](err); !ok || q.Text != "no target" {
		t.Errorf("got %v", err)
	}
}

// Root does not believe who is not root, and a socket that became something else is not opened to its group.
func TestClientOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("", "sluice-status-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listening := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which is another user, ends
		const other = 4711
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, other, other, other); errno != 0 {
			t.Log("become another user:", errno)
			close(listening)
			return
		}
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Error(err)
		}
		listening <- l
	}()
	l := <-listening
	if l == nil {
		t.Skip("this user namespace has one user")
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"healthy": true}`) }))
	if s, err := (Client{Socket: socket}).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "served by user 4711") {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestAllowGroup(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, secret} {
		if err := allowGroup(path); err == nil || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

// Questions that nobody ends do not keep others from asking, nor take all of the agent's descriptors.
func TestSilentClientsOfTheSocket(t *testing.T) {
	c := serve(t, &provider{})
	for range 4 * maxConns {
		conn, err := net.Dial("unix", c.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
}
