package status

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"sluice/agent/httpserver"
)

// The paths that are served. Each answers GET with one document.
const (
	pathStatus    = "/status"
	pathServices  = "/services"
	pathEndpoints = "/endpoints"
	pathCounts    = "/counts"
	pathDiff      = "/diff"
	pathExplain   = "/explain" // with the parameters of a Question
)

// maxConns is how many questions are answered at a time. The descriptors are needed for other things.
const maxConns = 64

// Serve answers on l, which comes from Listen, until ctx ends, and closes it.
// It returns an error only if it stopped for another reason than ctx.
func Serve(ctx context.Context, l net.Listener, p Provider, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, answer(log, p.Status))
	mux.HandleFunc("GET "+pathServices, answer(log, func(ctx context.Context) (List[Service], error) {
		items, err := p.Services(ctx)
		return List[Service]{nonNil(items)}, err
	}))
	mux.HandleFunc("GET "+pathEndpoints, answer(log, func(ctx context.Context) (List[Endpoint], error) {
		items, err := p.Endpoints(ctx)
		return List[Endpoint]{nonNil(items)}, err
	}))
	mux.HandleFunc("GET "+pathCounts, answer(log, p.Counts))
	mux.HandleFunc("GET "+pathDiff, answer(log, func(ctx context.Context) (Diff, error) {
		d, err := p.Diff(ctx)
		d.Items = nonNil(d.Items)
		return d, err
	}))
	mux.HandleFunc("GET "+pathExplain, func(w http.ResponseWriter, r *http.Request) {
		get := r.URL.Query().Get
		answer(log, func(ctx context.Context) (List[Path], error) {
			items, err := p.Explain(ctx, Question{Target: get("target"), From: get("from"), Protocol: get("protocol"), Live: get("live") != ""})
			return List[Path]{nonNil(items)}, err
		})(w, r)
	})
	server := &http.Server{
		Handler:           mux,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      time.Minute,
		MaxHeaderBytes:    4 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // each question is a connection of its own; none is kept waiting
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(httpserver.NewLimit(maxConns).Listener(l)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer serves one document.
func answer[T any](log *slog.Logger, get func(context.Context) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		doc, err := get(r.Context())
		if err != nil {
			code := http.StatusServiceUnavailable
			if _, ok := errors.AsType[*QuestionError](err); ok {
				code = http.StatusBadRequest
			}
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(doc); err != nil {
			log.Debug("cannot send a status document", "path", r.URL.Path, "error", err)
		}
	}
}

// nonNil keeps "items": null out of the documents.
func nonNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
