package check

import (
	"fmt"
	"io"
	"strings"
)

// The colours of terminals (ECMA-48) for the levels.
var colours = map[Level]string{OK: "\x1b[32m", Warn: "\x1b[33m", Fail: "\x1b[31m"}

const plain = "\x1b[0m"

// Write writes the report for people, a line for each item, and one with the remedy below those that need one.
func (r Report) Write(w io.Writer, colour bool) error {
	paint := func(l Level, text string) string {
		if !colour {
			return text
		}
		return colours[l] + text + plain
	}
	var b strings.Builder
	group := ""
	for _, item := range r.Items {
		if item.Group != group {
			if group != "" {
				b.WriteByte('\n')
			}
			group = item.Group
			fmt.Fprintf(&b, "%s:\n", group)
		}
		fmt.Fprintf(&b, "- %s: %s", item.Name, paint(item.Level, string(item.Level)))
		if item.Detail != "" {
			fmt.Fprintf(&b, " (%s)", item.Detail)
		}
		b.WriteByte('\n')
		if item.Remedy != "" {
			fmt.Fprintf(&b, "    remedy: %s\n", item.Remedy)
		}
	}
	switch {
	case r.Failures > 0:
		fmt.Fprintf(&b, "\nSTATUS: %s\n", paint(Fail, fmt.Sprintf("%d (fail), %d warnings", r.Failures, r.Warnings)))
	case r.Warnings > 0:
		fmt.Fprintf(&b, "\nSTATUS: %s\n", paint(Warn, fmt.Sprintf("pass, %d warnings", r.Warnings)))
	default:
		fmt.Fprintf(&b, "\nSTATUS: %s\n", paint(OK, "pass"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
