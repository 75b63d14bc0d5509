package kube

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// maxVerbosity is the highest klog verbosity that is passed on. Above it, client-go
// dumps requests and answers.
const maxVerbosity = 4

// LogLibraries sends what the Kubernetes libraries log to log, at debug level: they log each
// attempt, and what lasts is logged by the Source. klog is one for the whole
// process: call this once, before any Source runs.
func LogLibraries(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(debugHandler{log.Handler()}))
}

// debugHandler passes every record on as one of debug level.
type debugHandler struct{ next slog.Handler }

// Enabled implements slog.Handler. klog's V(n) is level -n.
func (h debugHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= -maxVerbosity && h.next.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler. klog does not ask Enabled about errors.
func (h debugHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	r.Level = slog.LevelDebug
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{h.next.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{h.next.WithGroup(name)}
}
