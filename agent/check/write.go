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
	level := OK
	switch {
	case r.Failures > 0:
		level = Fail
	case r.Warnings+r.Unseen > 0:
		level = Warn
	}
	fmt.Fprintf(&b, "\nSTATUS: %s\n", paint(level, r.summary()))
	_, err := io.WriteString(w, b.String())
	return err
}

// summary counts what is not ok: "1 failure, 3 warnings".
func (r Report) summary() string {
	count := func(n int, noun string) string {
		switch n {
		case 0:
			return "no " + noun + "s"
		case 1:
			return "1 " + noun
		}
		return fmt.Sprintf("%d %ss", n, noun)
	}
	text := count(r.Failures, "failure") + ", " + count(r.Warnings, "warning")
	if r.Unseen > 0 {
		text += fmt.Sprintf("; %d of %s could not be looked at: run sluice check as root", r.Unseen, count(len(r.Items), "thing"))
	}
	return text
}
