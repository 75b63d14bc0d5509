package notify

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// systemd is the other end.
type systemd struct {
	t    *testing.T
	conn *net.UnixConn
}

func newSystemd(t *testing.T, watchdog time.Duration) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	if watchdog == 0 {
		t.Setenv("WATCHDOG_USEC", "")
	}
	return &systemd{t, conn}
}

// hear returns the next datagram; "" if none comes in time.
func (s *systemd) hear(within time.Duration) string {
	s.t.Helper()
	b := make([]byte, 4096)
	s.conn.SetReadDeadline(time.Now().Add(within))
	n, err := s.conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Fatal(err)
	}
	return string(b[:n])
}

func (s *systemd) expect(want string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.hear(5*time.Second)); diff != "" {
		s.t.Fatalf("(-want +got):\n%s", diff)
	}
}

// loop answers, or does not.
type loop struct {
	mu   sync.Mutex
	line string
	err  error
}

func (l *loop) set(line string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line, l.err = line, err
}

func (l *loop) status(ctx context.Context) (string, error) {
	l.mu.Lock()
	line, err := l.line, l.err
	l.mu.Unlock()
	if line == "hangs" {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return line, err
}

func start(t *testing.T, l *loop, log *bytes.Buffer) (n *Notifier, stop func()) {
	t.Helper()
	n = New(Options{Status: l.status, Log: slog.New(slog.NewTextHandler(log, nil))})
	return n, run(t, n)
}

// run runs a notifier until stop is called or the test ends, at whose end it says that it stops: the next test has another socket.
func run(t *testing.T, n *Notifier) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

func TestReadyAndStatus(t *testing.T) {
	s := newSystemd(t, 0)
	l := &loop{line: "begins"}
	var log bytes.Buffer
	n, stop := start(t, l, &log)
	s.expect("STATUS=begins")
	if got := s.hear(200 * time.Millisecond); got != "" {
		t.Errorf("told %q without a reason", got)
	}
	l.set("two\nlines", nil)
	n.Ready()
	n.Ready()
	s.expect("READY=1\nSTATUS=two lines")
	stop()
	s.expect("STOPPING=1\nSTATUS=Stopping; the rules stay in the kernel")
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", &log)
	}
}

func TestReadyBeforeRun(t *testing.T) {
	s := newSystemd(t, 0)
	var log bytes.Buffer
	n := New(Options{Status: (&loop{line: "works"}).status, Log: slog.New(slog.NewTextHandler(&log, nil))})
	n.Ready()
	run(t, n)
	s.expect("STATUS=works")
	s.expect("READY=1")
}

// The watchdog is fed in half of its time, and only while the loop answers.
func TestWatchdog(t *testing.T) {
	const usec = 400 * time.Millisecond
	s := newSystemd(t, usec)
	l := &loop{line: "works"}
	var log bytes.Buffer
	_, stop := start(t, l, &log)
	s.expect("WATCHDOG=1\nSTATUS=works")
	for range 3 {
		begin := time.Now()
		s.expect("WATCHDOG=1")
		if took := time.Since(begin); took > usec {
			t.Errorf("fed after %v, %v are too much", took, usec)
		}
	}
	for _, silence := range []struct {
		line string
		err  error
	}{{"hangs", nil}, {"", errors.New("broken")}} {
		l.set(silence.line, silence.err)
		s.hear(usec / 2) // what was on its way
		if got := s.hear(2 * usec); got != "" {
			t.Errorf("%v: told %q although the loop does not answer", silence, got)
		}
		l.set("works", nil)
		s.expect("WATCHDOG=1")
	}
	stop()
	if got := strings.Count(log.String(), "does not answer"); got != 2 {
		t.Errorf("logged %d times, want once for each silence:\n%s", got, &log)
	}
}

func TestWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := New(Options{Status: func(context.Context) (string, error) {
		t.Error("asked although nobody wants to know")
		return "", nil
	}})
	n.Ready()
	n.Run(t.Context()) // returns at once
}

// Systemd hears all once it listens again.
func TestSocketGone(t *testing.T) {
	const usec = 40 * time.Millisecond
	s := newSystemd(t, usec)
	path := os.Getenv("NOTIFY_SOCKET")
	s.conn.Close()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var log bytes.Buffer
	n, stop := start(t, &loop{line: "works"}, &log)
	n.Ready()
	time.Sleep(5 * usec)
	again, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	s.conn = again
	s.expect("READY=1\nWATCHDOG=1\nSTATUS=works")
	stop()
	if got := strings.Count(log.String(), "tell systemd"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, &log)
	}
}

func TestLine(t *testing.T) {
	for _, test := range []struct {
		state State
		want  string
	}{
		{State{Source: "manifests /m", Age: -1}, "Serving 0 Services, 0 endpoints while manifests /m is read"},
		{State{Services: 1, Endpoints: 1, Source: "manifests /m", Synced: true, Age: -1}, "Serving 1 Service, 1 endpoint from manifests /m"},
		{State{Services: 12, Endpoints: 36, Source: "https://a:6444", Synced: true, Age: time.Minute}, "Serving 12 Services, 36 endpoints from https://a:6444"},
		{State{Services: 12, Endpoints: 36, Source: "https://a:6444", Synced: true, Age: 2 * time.Hour, Problems: 1},
			"Serving 12 Services, 36 endpoints from https://a:6444, which was last heard 120m ago; 1 problem, see sluice status"},
		{State{Services: 2, Endpoints: 3, Source: "https://a:6444", Age: 50 * time.Hour, Problems: 2},
			"Serving 2 Services, 3 endpoints from a cache that is 2d2h old, until https://a:6444 is read; 2 problems, see sluice status"},
	} {
		if got := test.state.String(); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}
