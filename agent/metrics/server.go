package metrics

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"

	"sluice/agent/config"
	"sluice/agent/httpserver"
)

// ServeOptions say what is served beside the metrics.
type ServeOptions struct {
	httpserver.Options
	// Mode is how rules are written, as /proxyMode tells it.
	Mode string
	// Config is the configuration in force, for /configz.
	Config *config.Config
	// Page is the status page; nil for none.
	Page http.Handler
}

// Serve serves at an address until ctx ends what kube-proxy serves there: /metrics, /proxyMode, /configz, /healthz
// (which only tells that the process answers), and with Config.Profiling profiles under /debug/pprof/; and at / the status
// page. At the loopback address it does so for that alone. While
// the address cannot be had it is tried again; that is logged once.
func Serve(ctx context.Context, at netip.AddrPort, r *Recorder, o ServeOptions) {
	r.Write(new(bytes.Buffer)) // the counters of Services are looked at for the first time
	httpserver.ServeAt(ctx, "/metrics", at, httpserver.GuardHost(at, handler(r, o)), o.Options)
}

func handler(r *Recorder, o ServeOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var page bytes.Buffer
		r.Write(&page)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write(page.Bytes())
	})
	mux.HandleFunc("GET /proxyMode", text(o.Mode))
	mux.HandleFunc("GET /healthz", text("ok"))
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
		document, err := configz(o.Config, o.Mode)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(document)
	})
	if o.Page != nil {
		mux.Handle("GET /{$}", o.Page)
	}
	if o.Config.Profiling {
		addProfiles(mux)
	}
	return mux
}

// text answers with a plain text.
func text(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		io.WriteString(w, answer)
	}
}
