// Package health answers those who ask whether this node serves: /healthz and
// /livez for the node as a whole, and a healthCheckNodePort for each Service that has one.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
)

// ListenFunc opens a listener, as net.ListenConfig.Listen does.
type ListenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Options of servers.
type Options struct {
	// Listen opens the listeners; nil is that of a zero net.ListenConfig.
	Listen ListenFunc
	// Log gets what goes wrong; nil is slog.Default().
	Log *slog.Logger
	// Retry is the pause before an address that cannot be listened on is tried again; 0 is 5 s, as in kube-proxy.
	Retry time.Duration
}

func (o Options) withDefaults() Options {
	if o.Listen == nil {
		o.Listen = new(net.ListenConfig).Listen
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Retry == 0 {
		o.Retry = 5 * time.Second
	}
	return o
}

// Limits of every server here: the questions are a few hundred bytes and come
// every few seconds, from anyone who can reach the node.
const (
	readTimeout    = 5 * time.Second
	writeTimeout   = 5 * time.Second
	maxHeaderBytes = 4 << 10
	maxConns       = 32 // at a time, for each listener; more wait
)

// newServer returns a server that keeps no connection open after an answer: idle
// connections of many load balancers would cost more than to open new ones.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.SetKeepAlivesEnabled(false)
	return s
}

func serve(s *http.Server, l net.Listener) error {
	return s.Serve(netutil.LimitListener(l, maxConns))
}

// Serve serves /healthz and /livez at an address until ctx ends. While the
// address cannot be had it is tried again; that is logged once.
//
// /livez answers 200 while no change waits too long to be written to the kernel, else
// 503. /healthz moreover answers 503 once the node is about to go.
func Serve(ctx context.Context, at netip.AddrPort, t *Tracker, o Options) {
	o = o.withDefaults()
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s, eligible := t.status(), t.nodeEligible()
		s.NodeEligible = &eligible
		answer(w, s, s.Healthy && eligible)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		s := t.status()
		answer(w, s, s.Healthy)
	})
	failed := ""
	for {
		err := serveOnce(ctx, at, mux, o)
		if ctx.Err() != nil {
			return
		}
		if failed != err.Error() {
			o.Log.Error("health is not served; tried again until it is", "address", at.String(), "error", err, "retry", o.Retry)
			failed = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(o.Retry):
		}
	}
}

func serveOnce(ctx context.Context, at netip.AddrPort, h http.Handler, o Options) error {
	l, err := o.Listen(ctx, "tcp", at.String())
	if err != nil {
		return bindError(err)
	}
	o.Log.Info("health is served", "address", l.Addr().String())
	s := newServer(h, o.Log)
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	defer s.Close()
	return serve(s, l)
}

// bindError adds what helps against an error of listening.
func bindError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another process has this port; see 'ss -ltnp'", err)
	}
	return err
}

func answer(w http.ResponseWriter, s status, ok bool) {
	// Old clients take lastUpdated for the last turn of a loop that never rests: they are
	// told a recent time as long as all is well, as by kube-proxy.
	if ok {
		s.LastUpdated = s.CurrentTime
	}
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w)
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write(body)
}

func setHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
