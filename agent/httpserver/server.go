// Package httpserver is how the agent serves HTTP on the network: to whoever can
// reach the node, so every server is bounded in time, memory and connections.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
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

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
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

// ReadTimeout is how long a client may take to send its question.
const ReadTimeout = 5 * time.Second

// Other limits of every server: the questions are a few hundred bytes and come
// every few seconds.
const (
	writeTimeout   = 5 * time.Second
	maxHeaderBytes = 4 << 10
	maxConns       = 64 // at a time, for each listener
)

// New returns a server that keeps no connection open after an answer: idle
// connections of many clients would cost more than to open new ones.
func New(h http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: ReadTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.SetKeepAlivesEnabled(false)
	return s
}

// Serve serves on l until the server is closed, and closes l.
func Serve(s *http.Server, l net.Listener) error {
	return s.Serve(NewLimit(maxConns).Listener(l))
}

// ServeAt serves h at an address until ctx ends. While the address cannot be had it is
// tried again; that is logged once, as "WHAT is not served".
func ServeAt(ctx context.Context, what string, at netip.AddrPort, h http.Handler, o Options) {
	o = o.WithDefaults()
	failed := ""
	for {
		err := serveOnce(ctx, what, at, h, o)
		if ctx.Err() != nil {
			return
		}
		if failed != err.Error() {
			o.Log.Error(what+" is not served; tried again until it is", "address", at.String(), "error", err, "retry", o.Retry)
			failed = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(o.Retry):
		}
	}
}

func serveOnce(ctx context.Context, what string, at netip.AddrPort, h http.Handler, o Options) error {
	l, err := o.Listen(ctx, "tcp", at.String())
	if err != nil {
		return BindError(err)
	}
	o.Log.Info(what+" is served", "address", l.Addr().String())
	s := New(h, o.Log)
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	defer s.Close()
	return Serve(s, l)
}

// BindError adds what helps against an error of listening.
func BindError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another process has this port; see 'ss -ltnp'", err)
	}
	return err
}
