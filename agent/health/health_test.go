package health

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"sluice/test/lab"
	"sluice/test/testlog"
)

func TestMain(m *testing.M) { lab.Main(m) }

// node is a network namespace with servers and a client in it.
type node struct {
	*lab.Namespace
	client http.Client
	log    testlog.Buffer
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Namespace: lab.NewTestNamespace(t, "address add 192.168.1.5/32 dev lo", "address add fd00::5/128 dev lo nodad")}
	n.client = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: n.Dial}}
	return n
}

func (n *node) options() Options {
	return Options{Listen: n.Listen, Log: slog.New(slog.NewTextHandler(&n.log, nil)), Retry: 20 * time.Millisecond}
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
