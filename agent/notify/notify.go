// Package notify tells systemd how the agent is (sd_notify(3)): that it is ready,
// what it does, and that it lives. Without NOTIFY_SOCKET, which systemd sets, it does nothing.
package notify

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// statusInterval is how often the status line is brought up to date, unless the watchdog is to be fed more often.
const statusInterval = 30 * time.Second

// Options for New.
type Options struct {
	// Status returns one line about what the agent does. It has to come from the goroutine whose
	// life the watchdog guards: systemd is told that the agent lives only when it answers.
	Status func(context.Context) (string, error)
	// Log gets what goes wrong; nil is slog.Default().
	Log *slog.Logger
}

// Notifier talks to systemd.
type Notifier struct {
	options Options
	once    sync.Once
	ready   chan struct{}

	// Of Run's goroutine.
	due    bool   // Ready was called, and systemd does not know
	told   string // the status line
	failed string // the error that was logged last
}

// New returns a Notifier for Run.
func New(o Options) *Notifier {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Notifier{options: o, ready: make(chan struct{})}
}

// Ready says that the agent does its work from now on. It may be called from any
// goroutine and more than once, and does not wait.
func (n *Notifier) Ready() { n.once.Do(func() { close(n.ready) }) }

// Run tells systemd how the agent is until ctx ends, and then that it is stopping.
func (n *Notifier) Run(ctx context.Context) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.options.Log.Warn("the watchdog of systemd is not fed", "error", err)
	}
	interval := statusInterval
	if watchdog > 0 { // twice in the time that systemd waits, as sd_watchdog_enabled(3) recommends
		interval = min(interval, watchdog/2)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	n.report(ctx, interval, watchdog > 0)
	for ready := n.ready; ; {
		select {
		case <-ctx.Done():
			n.send(daemon.SdNotifyStopping, "STATUS=Stopping; the rules stay in the kernel")
			return
		case <-ready:
			ready, n.due = nil, true
			n.report(ctx, interval, watchdog > 0)
		case <-ticker.C:
			n.report(ctx, interval, watchdog > 0)
		}
	}
}

// report asks for the status and passes it on if it is another than before.
func (n *Notifier) report(ctx context.Context, patience time.Duration, watchdog bool) {
	var states []string
	if n.due {
		states = append(states, daemon.SdNotifyReady)
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	line, err := n.options.Status(asking)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		n.warn(fmt.Errorf("the agent's loop does not answer: %w", err))
	} else {
		if watchdog {
			states = append(states, daemon.SdNotifyWatchdog)
		}
		if line != n.told {
			states = append(states, "STATUS="+strings.ReplaceAll(line, "\n", " "))
		}
	}
	if len(states) == 0 || !n.send(states...) {
		return
	}
	n.due = false
	if err == nil {
		n.told, n.failed = line, ""
	}
}

// send sends states in one datagram.
func (n *Notifier) send(states ...string) bool {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		n.warn(fmt.Errorf("tell systemd: %w", err))
		return false
	}
	return true
}

// warn logs an error once.
func (n *Notifier) warn(err error) {
	if n.failed != err.Error() {
		n.options.Log.Warn("systemd is not told how the agent is", "error", err)
		n.failed = err.Error()
	}
}
