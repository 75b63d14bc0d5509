// Package outcomes writes what a proxy.Tracer found, for tests.
package outcomes

import (
	"strings"

	"sluice/proxy"
)

// Text has a line for each outcome, and one below it for each step, whose place is written without prefix.
func Text(all []proxy.Outcome, prefix string) string {
	var b strings.Builder
	for _, o := range all {
		b.WriteString("\n" + o.Verdict.String())
		if o.Verdict == proxy.Forwarded {
			b.WriteString(" to " + o.Endpoint.String())
		}
		if o.Masquerade {
			b.WriteString(" masqueraded")
		}
		for _, step := range o.Steps {
			b.WriteString("\n  " + strings.TrimPrefix(step.Where, prefix) + ": " + step.Rule)
		}
	}
	return b.String() + "\n"
}
