// Package agent is the daemon.
package agent

import (
	"context"
	"errors"
	"log/slog"

	"sluice/agent/config"
)

// Run runs the agent until ctx ends.
func Run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	return errors.New("the agent's loop is not built in")
}
