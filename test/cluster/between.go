package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Between is an HTTPS proxy in front of the API server, where all goes wrong that a network, a proxy or a server can do
// wrong: see Answer for requests, Send for watches and Line for connections. Without any of them it passes all on.
type Between struct {
	// URL is where it listens, beside the server.
	URL string

	cluster *Cluster
	server  *http.Server
	line    *line

	mu       sync.Mutex
	answer   func(http.ResponseWriter, *http.Request) bool
	requests []Request
	watches  map[*openWatch]struct{}
}

// Request is one that came.
type Request struct {
	At    time.Time
	Path  string
	Query url.Values
}

// Watch tells whether it asked for a watch.
func (r Request) Watch() bool { return r.Query.Get("watch") == "true" }

// NewBetween starts one. It ends with Close.
func (c *Cluster) NewBetween() (*Between, error) {
	b := &Between{cluster: c, line: newLine(), watches: map[*openWatch]struct{}{}}
	at, err := c.freePort(c.bind.Addr())
	if err != nil {
		return nil, err
	}
	b.URL = "https://" + at.String()
	pair, err := c.CA.Valid("kube-apiserver", at.Addr())
	if err != nil {
		return nil, err
	}
	return b, b.Listen(pair)
}

// Listen starts it with a server's certificate, after NewBetween or Close.
func (b *Between) Listen(pair Pair) error {
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return fmt.Errorf("the certificate of the proxy: %w", err)
	}
	var listener net.Listener
	err = b.cluster.do(func() error {
		listener, err = net.Listen("tcp", strings.TrimPrefix(b.URL, "https://"))
		return err
	})
	if err != nil {
		return fmt.Errorf("listen before the API server: %w", err)
	}
	server := &http.Server{Handler: b, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	b.server = server
	go func() { _ = server.ServeTLS(&lineListener{listener, b.line}, "", "") }()
	return nil
}

// Addr is where it listens.
func (b *Between) Addr() netip.Addr { return b.cluster.bind.Addr() }

// Close cuts all connections and listens no more.
func (b *Between) Close() error { return b.server.Close() }

// Kubeconfig is a kubeconfig of the server changed so that it leads here.
func (b *Between) Kubeconfig(text string) string {
	return strings.ReplaceAll(text, b.cluster.URL, b.URL)
}

// Line sets what each connection lets through to the client from now on: bytes a second, as many as there are if that is 0,
// each later by delay. With stalled it lets nothing through, and stays open.
func (b *Between) Line(bytesPerSecond int, delay time.Duration, stalled bool) {
	b.line.set(bytesPerSecond, delay, stalled)
}

// Answer sets who answers a request in place of the server, by returning true; nil is nobody. It may call Pass.
func (b *Between) Answer(answer func(http.ResponseWriter, *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// Requests are those that came since a time.
func (b *Between) Requests(since time.Time) (all []Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r.At.After(since) {
			all = append(all, r)
		}
	}
	return all
}

// ServeHTTP implements http.Handler.
func (b *Between) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	answer := b.answer
	b.requests = append(b.requests, Request{time.Now(), r.URL.Path, r.URL.Query()})
	b.mu.Unlock()
	if answer == nil || !answer(w, r) {
		b.Pass(w, r)
	}
}

// Pass lets the server answer.
func (b *Between) Pass(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	req := r.Clone(ctx)
	req.RequestURI = ""
	req.URL.Scheme, req.URL.Host = "https", strings.TrimPrefix(b.cluster.URL, "https://")
	req.Host = req.URL.Host
	resp, err := b.cluster.client.Transport.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler) // cuts the request off, as the server would be
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if r.URL.Query().Get("watch") == "true" && resp.StatusCode == http.StatusOK {
		b.relay(w, r, resp.Body, cancel)
		return
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}
