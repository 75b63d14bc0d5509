package httpserver

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestGuardHost(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, test := range []struct {
		at, host string
		want     int
	}{
		{"127.0.0.1:10249", "127.0.0.1:10249", 200},
		{"127.0.0.1:10249", "127.0.0.1", 200},
		{"127.0.0.1:10249", "localhost:8080", 200}, // by ssh -L
		{"127.0.0.1:10249", "LOCALHOST", 200},
		{"127.0.0.1:10249", "[::1]:8080", 200},
		{"127.0.0.1:10249", "[::1]", 200},
		{"127.0.0.1:10249", "", 200},
		{"[::1]:10249", "[::1]:10249", 200},
		{"[::ffff:127.0.0.1]:10249", "evil.example", 403},
		{"127.0.0.1:10249", "evil.example:10249", 403},
		{"127.0.0.1:10249", "127.0.0.1.evil.example", 403},
		{"127.0.0.1:10249", "localhost.evil.example", 403},
		{"127.0.0.1:10249", "192.0.2.1:10249", 403},
		{"[::1]:10249", "evil.example", 403},
		{"0.0.0.0:10249", "pi.example:10249", 200},
		{"192.0.2.1:10249", "pi.example", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		GuardHost(netip.MustParseAddrPort(test.at), ok).ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("at %s for host %q: %d, want %d", test.at, test.host, w.Code, test.want)
		}
	}
}
