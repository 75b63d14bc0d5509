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
	"sync"
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

func TestListenModes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "sluice", "s.sock")
	l, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]fs.FileMode{
		filepath.Dir(socket): fs.ModeDir | 0o755,
		socket:               fs.ModeSocket | 0o660,
		socket + lockSuffix:  0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
}

func TestListenTwice(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	first, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen(t.Context(), socket)
	if running, ok := errors.AsType[*RunningError](err); !ok || running.PID != os.Getpid() {
		t.Errorf("second Listen: got %v, want a RunningError with pid %d", err, os.Getpid())
	}
	if _, err := net.Dial("unix", socket); err != nil {
		t.Errorf("the first is not reachable any more: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	again, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}

func TestListenAtOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	leaveSocket(t, socket)
	const n = 20
	var wg sync.WaitGroup
	got := make([]error, n)
	listeners := make([]*Listener, n)
	for i := range n {
		wg.Go(func() { listeners[i], got[i] = Listen(t.Context(), socket) })
	}
	wg.Wait()
	won := 0
	for i := range n {
		if got[i] == nil {
			won++
			defer listeners[i].Close()
		} else if _, ok := errors.AsType[*RunningError](got[i]); !ok {
			t.Errorf("a loser got %v", got[i])
		}
	}
	if won != 1 {
		t.Errorf("%d of %d have the socket", won, n)
	}
}

func TestListenReplacesOnlyDeadSockets(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string // part of the error, empty for success
	}{
		{"a dead agent's socket", leaveSocket, ""},
		{"a socket that is alive, without a lock", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "in use by process"},
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a symbolic link to a dead socket", func(t *testing.T, path string) {
			leaveSocket(t, path+"-target")
			if err := os.Symlink(path+"-target", path); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a symbolic link to nothing", func(t *testing.T, path string) {
			if err := os.Symlink(path+"-target", path); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a symbolic link for a lock", func(t *testing.T, path string) {
			if err := os.Symlink(path+"-target", path+lockSuffix); err != nil {
				t.Fatal(err)
			}
		}, "lock"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s.sock")
			test.make(t, socket)
			before, _ := os.Lstat(socket)
			l, err := Listen(t.Context(), socket)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if after, _ := os.Lstat(socket); before != nil && !os.SameFile(before, after) {
				t.Error("what was there is gone")
			}
		})
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
