package proxy

import (
	"context"
	"fmt"
	"net/netip"
)

// FrontendChange is one frontend whose route came, went or became another.
type FrontendChange struct {
	Frontend
	Old *Route // nil: the frontend is new
	New *Route // nil: the frontend goes
}

// Delta is the difference between two desired states of one family. Settings
// changes are not in it: they go through Writer.Reconcile.
type Delta struct {
	Frontends []FrontendChange
	// ClusterIPs and local endpoint addresses that came and went.
	AddedClusterIPs, RemovedClusterIPs         []netip.Addr
	AddedLocalEndpoints, RemovedLocalEndpoints []netip.Addr
}

// Empty tells whether d changes nothing.
func (d *Delta) Empty() bool {
	return len(d.Frontends) == 0 &&
		len(d.AddedClusterIPs)+len(d.RemovedClusterIPs) == 0 &&
		len(d.AddedLocalEndpoints)+len(d.RemovedLocalEndpoints) == 0
}

// Stats says what a write did, in the writer's own unit (elements for nftables).
type Stats struct {
	Added, Removed, Unchanged int
	// Found is what Reconcile found in the kernel that was not as it should be, MaxFound of it at most. Where nothing
	// of ours was there, as before the first write, it is empty.
	Found []Difference
}

// MaxFound bounds Stats.Found.
const MaxFound = 20

// Program is who changed rules, as far as the kernel tells; the zero Program is not known.
type Program struct {
	PID  int
	Name string
}

func (p Program) String() string {
	switch {
	case p.Name == "":
		return "unknown"
	case p.PID == 0:
		return p.Name
	}
	return fmt.Sprintf("%s (pid %d)", p.Name, p.PID)
}

// Writer brings the desired state of one family into a kernel. Its methods are
// called from one goroutine.
type Writer interface {
	// Slots returns the slots that the kernel already has for a frontend, as far as the
	// writer knows before its first Reconcile, so that planning can go on from them.
	Slots(f Frontend) (pool, localPool []netip.AddrPort)
	// Reconcile reads the kernel back and makes it equal to the state: what is right already is not touched.
	Reconcile(ctx context.Context, s *State) (Stats, error)
	// Apply makes one change, in one transaction. After an error the kernel's state is
	// unknown (it may even hold the change): call Reconcile.
	Apply(ctx context.Context, d *Delta) (Stats, error)
	// Cleanup removes all that the writer ever wrote.
	Cleanup(ctx context.Context) error
	// Watch calls changed whenever another program has changed what the writer wrote,
	// until ctx ends. The call comes from a goroutine of the writer, at most once per burst.
	Watch(ctx context.Context, changed func(by Program)) error
	// Close ends the writer and leaves its rules in place.
	Close() error
}
