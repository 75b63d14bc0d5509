package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// GuardHost refuses requests for another host where a server listens at the loopback address. A page of the
// web can have its own name lead to that address, and would be let read the answers: the browser then names that host.
func GuardHost(at netip.AddrPort, h http.Handler) http.Handler {
	if !at.Addr().Unmap().IsLoopback() {
		return h // under which names it is reached is not known here
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "this address is for requests to localhost or a loopback address; a proxy before it has to set the header Host", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLoopback takes the header Host, with or without a port. Without the header there is no browser that asks.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "" || strings.EqualFold(host, "localhost")
}
