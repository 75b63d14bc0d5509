package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"sluice/proxy"
)

// Drift is a repair of what another program had changed in the kernel.
type Drift struct {
	Family proxy.Family `json:"family"`
	// Time is when it was mended, for the last time.
	Time time.Time `json:"time"`
	// Program made the change; empty if the kernel does not tell.
	Program string `json:"program,omitempty"`
	// Times is how often the same was changed and mended in a row.
	Times int `json:"times"`
	// Fight: it comes again and again, and repairs have pauses.
	Fight bool `json:"fight,omitempty"`
	// Changes are some of what was found, in words; empty if all was right again.
	Changes []string `json:"changes,omitempty"`
}

func (d *Drift) text(now time.Time) string {
	by := cmp.Or(d.Program, "a program that the kernel does not name")
	s := fmt.Sprintf("%s ago, %v, by %s", age(d.Time, now), d.Family, by)
	if d.Times > 1 {
		s += fmt.Sprintf(", %d times", d.Times)
	}
	if d.Fight {
		s += " (again and again: repairs have pauses now)"
	}
	if len(d.Changes) > 0 {
		s += ": " + strings.Join(d.Changes, "; ")
	}
	return s
}
