package health

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
)

type checks = map[proxy.ServiceName]proxy.HealthCheck

func addrs(s ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range s {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func newServers(t *testing.T, n *node) (*Servers, *atomic.Bool) {
	t.Helper()
	var healthy atomic.Bool
	healthy.Store(true)
	s := NewServers(healthy.Load, Limits{Listeners: 6}, n.options())
	t.Cleanup(s.Close)
	return s, &healthy
}

func TestServersAnswer(t *testing.T) {
	n := newNode(t)
	servers, healthy := newServers(t, n)
	web := proxy.ServiceName{Namespace: "default", Name: "web"}
	for _, tc := range []struct {
		endpoints int
		healthy   bool
		status    string
	}{
		{2, true, "200 OK"},
		{0, true, "503 Service Unavailable"},
		{2, false, "503 Service Unavailable"},
		{1, true, "200 OK"},
	} {
		servers.Sync(t.Context(), checks{web: {Port: 32000, LocalEndpoints: tc.endpoints}}, addrs("192.168.1.5", "fd00::5"))
		healthy.Store(tc.healthy)
		body := fmt.Sprintf(`{
	"service": {
		"namespace": "default",
		"name": "web"
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %t
}`, tc.endpoints, tc.healthy)
		for _, url := range []string{"http://192.168.1.5:32000/", "http://[fd00::5]:32000/any/path?x=y"} {
			status, header, got := n.get(t, url)
			if status != tc.status {
				t.Errorf("%+v: %s: status %s", tc, url, status)
			}
			if diff := cmp.Diff(body, got); diff != "" {
				t.Errorf("%+v: %s: body (-want +got):\n%s", tc, url, diff)
			}
			want := map[string]string{"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
				"X-Load-Balancing-Endpoint-Weight": fmt.Sprint(tc.endpoints)}
			for k, v := range want {
				if header.Get(k) != v {
					t.Errorf("%+v: %s: header %s: %q, want %q", tc, url, k, header.Get(k), v)
				}
			}
		}
	}
}

// What stays wanted is not interrupted by what comes and goes beside it.
func TestServersReconcile(t *testing.T) {
	n := newNode(t)
	servers, _ := newServers(t, n)
	a, b := proxy.ServiceName{Namespace: "ns", Name: "a"}, proxy.ServiceName{Namespace: "ns", Name: "b"}
	served := func(url string) string {
		_, _, body := n.get(t, url)
		_, rest, _ := strings.Cut(body, `"name": "`)
		name, _, _ := strings.Cut(rest, `"`)
		return name
	}
	expect := func(step string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for at := range want {
			got[at] = served("http://" + at)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}

	servers.Sync(t.Context(), checks{a: {Port: 32000}, b: {Port: 32001}}, addrs("192.168.1.5"))
	expect("two Services", map[string]string{"192.168.1.5:32000": "a", "192.168.1.5:32001": "b", "127.0.0.1:32000": ""})

	// A request that has begun is answered after a Sync that leaves its Service.
	slow, err := n.Dial(t.Context(), "tcp", "192.168.1.5:32000")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "GET / HTTP/1.1\r\n")
	servers.Sync(t.Context(), checks{a: {Port: 32000, LocalEndpoints: 3}}, addrs("192.168.1.5", "127.0.0.1"))
	fmt.Fprint(slow, "Host: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(slow), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("X-Load-Balancing-Endpoint-Weight"); got != "3" {
		t.Errorf("weight = %q, want that of the last Sync", got)
	}
	expect("one Service, two addresses", map[string]string{"192.168.1.5:32000": "a", "127.0.0.1:32000": "a", "192.168.1.5:32001": ""})

	servers.Sync(t.Context(), checks{a: {Port: 32001}, b: {Port: 32000}}, addrs("0.0.0.0"))
	expect("ports exchanged, at any address", map[string]string{"192.168.1.5:32001": "a", "127.0.0.1:32000": "b"})

	servers.Close()
	expect("closed", map[string]string{"192.168.1.5:32000": "", "192.168.1.5:32001": ""})
	if log := n.log.Take(); log != "" {
		t.Errorf("logged:\n%s", log)
	}
}

func TestServersBindFailure(t *testing.T) {
	n := newNode(t)
	servers, _ := newServers(t, n)
	taken, err := n.Listen(t.Context(), "tcp", "192.168.1.5:32000")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	a, b, c := proxy.ServiceName{Namespace: "ns", Name: "a"}, proxy.ServiceName{Namespace: "ns", Name: "b"}, proxy.ServiceName{Namespace: "ns", Name: "c"}
	wanted := checks{a: {Port: 32000}, b: {Port: 32001}, c: {Port: 32001}}
	at := addrs("192.168.1.5", "192.168.1.99") // the second is not the node's
	for range 3 {
		servers.Sync(t.Context(), wanted, at)
	}
	log := n.log.Take()
	for _, want := range []string{"service=ns/a address=192.168.1.5:32000", "address=192.168.1.99:32000", "address=192.168.1.99:32001", `services="ns/b and ns/c"`} {
		if got := strings.Count(log, want); got != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", want, got, log)
		}
	}
	if _, _, body := n.get(t, "http://192.168.1.5:32001"); !strings.Contains(body, `"name": "b"`) {
		t.Errorf("the Service that has its port is not served: %s", body)
	}

	taken.Close()
	servers.Sync(t.Context(), wanted, at)
	if _, _, body := n.get(t, "http://192.168.1.5:32000"); !strings.Contains(body, `"name": "a"`) {
		t.Errorf("the port is free again and not served: %s", body)
	}
}

// What does not fit is told, does not disturb what is served, and is served when there is room.
func TestServersLimit(t *testing.T) {
	n := newNode(t)
	servers, _ := newServers(t, n) // of six listeners
	all := checks{}
	for i := range 8 {
		all[proxy.ServiceName{Namespace: "ns", Name: fmt.Sprint("s", i)}] = proxy.HealthCheck{Port: uint16(32000 + i)}
	}
	servers.Sync(t.Context(), all, addrs("192.168.1.5"))
	failures := servers.Failures()
	last := proxy.ServiceName{Namespace: "ns", Name: "s7"}
	if len(failures) != 2 || !strings.Contains(failures[last], "healthCheckNodePort 32007 is not served at 192.168.1.5: 6 others are served") {
		t.Errorf("failures: %v", failures)
	}
	if status, _, _ := n.get(t, "http://192.168.1.5:32000"); !strings.HasPrefix(status, "503") {
		t.Errorf("the first is answered with %q", status)
	}
	delete(all, proxy.ServiceName{Namespace: "ns", Name: "s0"})
	delete(all, proxy.ServiceName{Namespace: "ns", Name: "s1"})
	servers.Sync(t.Context(), all, addrs("192.168.1.5"))
	if failures := servers.Failures(); len(failures) != 0 {
		t.Errorf("failures with room: %v", failures)
	}
	if status, _, _ := n.get(t, "http://192.168.1.5:32007"); !strings.HasPrefix(status, "503") {
		t.Errorf("the last is answered with %q", status)
	}
}
