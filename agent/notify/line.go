package notify

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// State is what the status line tells.
type State struct {
	Services, Endpoints int
	// Source names where objects come from.
	Source string
	// Synced is true once the source has handed over everything there is since the start.
	Synced bool
	// Age is how long ago what is known was in step with the source; negative if that is not known.
	Age time.Duration
	// Problems counts what the source cannot take up.
	Problems int
}

// stale is the age from which on it is told: an API server gives a sign of life each minute.
const stale = 3 * time.Minute

func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Serving %s, %s ", count(s.Services, "Service"), count(s.Endpoints, "endpoint"))
	switch {
	case s.Synced && s.Age < stale:
		fmt.Fprintf(&b, "from %s", s.Source)
	case s.Synced:
		fmt.Fprintf(&b, "from %s, which was last heard %s ago", s.Source, duration.HumanDuration(s.Age))
	case s.Age < 0:
		fmt.Fprintf(&b, "while %s is read", s.Source)
	default:
		fmt.Fprintf(&b, "from a cache that is %s old, until %s is read", duration.HumanDuration(s.Age), s.Source)
	}
	if s.Problems > 0 {
		fmt.Fprintf(&b, "; %s, see sluice status", count(s.Problems, "problem"))
	}
	return b.String()
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
