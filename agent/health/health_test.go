package health

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"sluice/test/lab"
)

func TestMain(m *testing.M) {
	code, entered, err := lab.Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !entered {
		code = m.Run()
	}
	os.Exit(code)
}

// node is a network namespace with servers and a client in it.
type node struct {
	*lab.Namespace
	client http.Client
	log    logBuffer
}

func newNode(t *testing.T) *node {
	t.Helper()
	ns, err := lab.NewNamespace("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	if _, err := ns.Run(t.Context(), "link set lo up\naddress add 192.168.1.5/32 dev lo\naddress add fd00::5/128 dev lo nodad\n", "ip", "-batch", "-"); err != nil {
		t.Fatal(err)
	}
	n := &node{Namespace: ns}
	n.client = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: n.dial}}
	return n
}

func (n *node) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

func (n *node) listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return l, err
}

func (n *node) options() Options {
	return Options{Listen: n.listen, Log: slog.New(slog.NewTextHandler(&n.log, nil)), Retry: 20 * time.Millisecond}
}

// get asks once. A refused connection gives the status "refused".
func (n *node) get(t *testing.T, url string) (status string, header http.Header, body string) {
	t.Helper()
	resp, err := n.client.Get(url)
	if err != nil {
		return "refused", nil, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status, resp.Header, string(b)
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 250 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s did not come to be in time", what)
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was logged since the last call.
func (l *logBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}
