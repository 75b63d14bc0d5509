package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/agent/source"
	"sluice/agent/status"
	"sluice/proxy"
)

// provider has Services that count a connection at each reading.
type provider struct {
	status   status.Status
	services int
	service  status.Service // what all have
	counts   status.Counts
	err      error
	readings atomic.Int64
	asked    atomic.Int64 // for a status
}

func (p *provider) Status(context.Context) (status.Status, error) {
	p.asked.Add(1)
	return p.status, p.err
}

func (p *provider) Counts(ctx context.Context) (status.Counts, error) {
	if p.err != nil {
		<-ctx.Done()
		return status.Counts{}, ctx.Err()
	}
	n := p.readings.Add(1)
	c := p.counts
	if c.NotCounted == "" {
		c.At = time.Unix(1_800_000_000+10*n, 0)
	}
	for i := range p.services {
		c.Items = append(c.Items, status.ServiceCounts{Namespace: "shop", Name: fmt.Sprintf("web-%03d", i), Connections: uint64(n * int64(i)),
			Endpoints: []status.ReadyCount{{Family: proxy.IPv4, Ready: 2, Total: 3}}})
	}
	return c, nil
}

func (p *provider) ServicesNamed(_ context.Context, names []proxy.ServiceName) (list []status.Service, err error) {
	for _, n := range names {
		s := p.service
		s.Namespace, s.Name = n.Namespace, n.Name
		list = append(list, s)
	}
	return list, p.err
}

// quick is a Handler whose first visitor does not wait.
func quick(p Provider) http.Handler { return &handler{provider: p} }

func ask(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func healthy() status.Status {
	return status.Status{
		Healthy: true, Version: "v1.2.3", PID: 7, Started: time.Now().Add(-time.Hour), Mode: "nftables", Node: "pi", NodeKnown: true, Synced: true,
		NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Detection: "IPv4: by ClusterCIDR.\nIPv6: too.", Source: "manifests /m",
		Families: []status.Family{{Family: proxy.IPv4, Services: 3, LastSync: time.Now(), Repairs: 2}, {Family: proxy.IPv6, LastError: "no room", RetryAt: time.Now().Add(time.Minute)}},
	}
}

func TestPage(t *testing.T) {
	p := &provider{status: healthy(), services: 3, service: status.Service{Type: "NodePort", ClusterIPs: []string{"10.43.0.1", "fd00::1"},
		Ports: []status.ServicePort{{Protocol: "TCP", Port: 80, NodePort: 30080}, {Protocol: "UDP", Port: 53}}}}
	w := ask(t, quick(p), "/")
	text := checkPage(t, w)
	for _, want := range []string{
		"sluice on pi healthy", "3 Services", "0.3 new connections/s", "6/9 endpoints ready", "2 repairs of rules",
		"shop/web-002 10.43.0.1, fd00::1 80:30080/TCP, 53/UDP NodePort 2/3 0.2 4", "rates over 10.0 s",
		"healthy, version v1.2.3, pid 7, up 60m", "mode nftables", "pods IPv4: by ClusterCIDR. IPv6: too.", "IPv6 0 services", "last error: no room",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the text:\n%s", want, text)
		}
	}
	if strings.Contains(w.Body.String(), "http-equiv") {
		t.Error("the page is loaded again without being asked for")
	}
	p.status.Healthy, p.status.Reasons = false, []string{"IPv6 rules cannot be written: no room."}
	text = checkPage(t, ask(t, quick(p), "/"))
	if !strings.Contains(text, "sluice on pi not healthy") || !strings.Contains(text, p.status.Reasons[0]) {
		t.Errorf("not healthy:\n%s", text)
	}
}

// Everything that others have written is text, wherever it stands.
func TestEscapes(t *testing.T) {
	const evil = `</style></title><script>alert(1)</script><img src=x onerror=alert(2)>"'&lt;` + "\x00\x1b\u202e\xff"
	const shown = `</style></title><script>alert(1)</script><img src=x onerror=alert(2)>"'&lt;`
	s := healthy()
	s.Healthy, s.Reasons, s.Version, s.Mode, s.Node, s.Detection, s.Source = false, []string{evil}, evil, evil, evil, evil, evil
	s.Cache = status.Cache{Path: evil, LastError: evil}
	s.Families[0].LastError = evil
	s.Objects = map[source.Kind]int{source.Kind(evil): 1}
	s.Problems = []source.Problem{{Where: evil, Reason: evil, Since: time.Now()}}
	s.Conflicts = []string{evil}
	p := &provider{status: s, services: 1, counts: status.Counts{NotCounted: evil}, service: status.Service{
		Type: evil, ClusterIPs: []string{evil}, ExternalIPs: []string{evil}, Ports: []status.ServicePort{{Name: evil, Protocol: evil, Port: 1}}, NotServed: []string{evil},
	}}
	w := ask(t, quick(p), "/")
	text := checkPage(t, w)
	if n := strings.Count(text, shown); n < 17 {
		t.Errorf("it is shown %d times:\n%s", n, text)
	}
	if body := w.Body.String(); strings.ContainsAny(body, "\x00\x1b\u202e") {
		t.Error("there are control characters in the page")
	}
}

func TestPages(t *testing.T) {
	p := &provider{status: healthy(), services: 450}
	for _, test := range []struct {
		target      string
		first, last string
		links       []string
	}{
		{"/", "shop/web-000", "shop/web-199", []string{"/?from=200"}},
		{"/?from=200&refresh=10", "shop/web-200", "shop/web-399", []string{"/?refresh=10", "/?from=400&refresh=10", "/?from=200", "/?from=200&refresh=60"}},
		{"/?from=400", "shop/web-400", "shop/web-449", []string{"/?from=200"}},
		{"/?from=100000", "shop/web-400", "shop/web-449", []string{"/?from=200"}},
		{"/?sort=rate", "shop/web-449", "shop/web-250", []string{"/?from=200&sort=rate", "/?sort=total", "/?refresh=2&sort=rate"}},
		{"/?sort=endpoints", "shop/web-000", "shop/web-199", nil},
	} {
		w := ask(t, quick(p), test.target)
		checkPage(t, w)
		rows, links := rowsAndLinks(t, w.Body.String())
		if rows[0] != test.first || rows[len(rows)-1] != test.last {
			t.Errorf("%s: from %s to %s", test.target, rows[0], rows[len(rows)-1])
		}
		for _, link := range test.links {
			if !links[link] {
				t.Errorf("%s: no link to %s in %v", test.target, link, links)
			}
		}
		if got := strings.Contains(w.Body.String(), `<meta http-equiv="refresh" content="10">`); got != strings.Contains(test.target, "refresh=10") {
			t.Errorf("%s: loaded again: %v", test.target, got)
		}
	}
	for _, bad := range []string{"/?refresh=0", "/?refresh=x", "/?refresh=99999", "/?from=-1", "/?from=99999999999999999999", "/?sort=%3Cscript%3E"} {
		if w := ask(t, quick(p), bad); w.Code != http.StatusBadRequest || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	if text := checkPage(t, ask(t, quick(&provider{status: healthy()}), "/")); !strings.Contains(text, "no Services") {
		t.Errorf("without Services:\n%s", text)
	}
}

// A page is made once for all who ask in the same second.
func TestShared(t *testing.T) {
	p := &provider{status: healthy(), services: 1}
	h := quick(p)
	ask(t, h, "/")
	begun := time.Now()
	for range 5 {
		ask(t, h, "/")
	}
	if n := p.asked.Load(); n != 1 && time.Since(begun) < share/2 {
		t.Errorf("the agent was asked %d times", n)
	}
	if ask(t, h, "/?sort=rate"); p.asked.Load() < 2 {
		t.Error("another page is the same")
	}
}

func TestBusyAgent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	quick(&provider{err: errors.New("busy")}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "busy") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
