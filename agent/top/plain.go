package top

import (
	"context"
	"fmt"
	"io"
	"time"

	"sluice/agent/status"
)

// Plain writes this many tables for what is no terminal. Before each it waits for the interval that the rates are of; where nothing
// is counted the first comes at once.
func Plain(ctx context.Context, w io.Writer, count int, o Options) error {
	var earlier status.Counts
	counts, err := o.Read(ctx)
	for n := 0; err == nil && n < count; n++ {
		if n > 0 || counts.NotCounted == "" {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(o.Interval):
			}
			earlier = counts
			if counts, err = o.Read(ctx); err != nil {
				break
			}
		}
		text := NewTable(earlier, counts, o.Namespace).Text(o.Sort)
		if n > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(w, text); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return err
}
