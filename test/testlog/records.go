package testlog

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Records collects log records from Info on, each as a line: its level, message and attributes. It implements slog.Handler;
// attributes and groups of a logger are left out.
type Records struct {
	mu    sync.Mutex
	lines []string
}

// Enabled implements slog.Handler.
func (r *Records) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (r *Records) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *Records) WithGroup(string) slog.Handler { return r }

// Handle implements slog.Handler.
func (r *Records) Handle(_ context.Context, record slog.Record) error {
	line := record.Level.String() + " " + record.Message
	record.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	return nil
}

// Matching lists the lines with all of the words.
func (r *Records) Matching(words ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, line := range r.lines {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// Take returns the lines since the last call, and forgets them.
func (r *Records) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}
