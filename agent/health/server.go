// Package health answers those who ask whether this node serves: /healthz and
// /livez for the node as a whole, and a healthCheckNodePort for each Service that has one.
package health

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"

	"sluice/agent/httpserver"
)

// Options of servers.
type Options = httpserver.Options

// Serve serves /healthz and /livez at an address until ctx ends. While the
// address cannot be had it is tried again; that is logged once.
//
// /livez answers 200 while no change waits too long to be written to the kernel, else
// 503. /healthz moreover answers 503 once the node is about to go.
func Serve(ctx context.Context, at netip.AddrPort, t *Tracker, o Options) {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s, eligible := t.status(), t.nodeEligible()
		s.NodeEligible = &eligible
		t.count(&t.probes.Healthz, answer(w, s, s.Healthy && eligible))
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		s := t.status()
		t.count(&t.probes.Livez, answer(w, s, s.Healthy))
	})
	httpserver.ServeAt(ctx, "health", at, mux, o)
}

// answer sends s and returns ok.
func answer(w http.ResponseWriter, s status, ok bool) bool {
	// Old clients take lastUpdated for the last turn of a loop that never rests: they are
	// told a recent time as long as all is well, as by kube-proxy.
	if ok {
		s.LastUpdated = s.CurrentTime
	}
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return false
	}
	setHeaders(w)
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write(body)
	return ok
}

func setHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
