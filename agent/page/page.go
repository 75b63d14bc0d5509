// Package page is the status page: how the agent is, in one HTML page for browsers, without scripts and
// without anything that would have to be loaded.
package page

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
)

// Provider is who knows how the agent is; its loop.
type Provider interface {
	Status(ctx context.Context) (status.Status, error)
	Counts(ctx context.Context) (status.Counts, error)
	// ServicesNamed describes the Services of these names.
	ServicesNamed(ctx context.Context, names []proxy.ServiceName) ([]status.Service, error)
}

const (
	// patience is how long the agent may take. The server's own limit for an answer is a second more.
	patience = 4 * time.Second
	// share is for how long a page is given to others who ask for the same.
	share = time.Second
)

// handler serves the page. It makes one at a time: more visitors cost no more.
type handler struct {
	provider Provider
	samples  samples

	mu   sync.Mutex
	of   query // of made
	made []byte
	at   time.Time
}

// Handler serves the page.
func Handler(p Provider) http.Handler {
	return &handler{provider: p, samples: samples{first: firstSample}}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	page, err := h.page(ctx, q)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("the agent is busy and did not answer within " + patience.String() + "; its log may say why")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", stylePolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	_, _ = w.Write(page) // the visitor may be gone
}

func (h *handler) page(ctx context.Context, q query) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == q && time.Since(h.at) < share {
		return h.made, nil
	}
	d, err := h.collect(ctx, q)
	if err != nil {
		return nil, err
	}
	h.of, h.made, h.at = q, d.html(), time.Now()
	return h.made, nil
}

// collect asks for what the page shows.
func (h *handler) collect(ctx context.Context, q query) (*document, error) {
	counts, rates, err := h.samples.read(ctx, h.provider.Counts)
	if err != nil {
		return nil, err
	}
	d := newDocument(q, counts, rates)
	services, err := h.provider.ServicesNamed(ctx, d.names())
	if err != nil {
		return nil, err
	}
	d.describe(services)
	d.status, err = h.provider.Status(ctx)
	d.now = time.Now()
	return d, err
}
