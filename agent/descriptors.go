package agent

import (
	"math"

	"golang.org/x/sys/unix"

	"sluice/agent/localport"
)

// descriptors are shares of the file descriptors that this process may have open. What others can make it open, by objects and by
// connections, leaves enough for the kernel's rules, the cache, the API server and programs that are run.
type descriptors struct {
	// In each family:
	listeners   int // of healthCheckNodePorts, and as many of NodePorts at the loopback address
	healthConns int // to healthCheckNodePorts
	localConns  int // to NodePorts at the loopback address
}

const (
	maxListeners   = 2048
	maxHealthConns = 256
)

// shareDescriptors shares a limit: a sixteenth for the listeners of each kind and family; of connections as many as fit into a
// fifth, since one to the loopback address takes up to six, its two sockets and a pipe each way. More than half is left.
func shareDescriptors(limit uint64) descriptors {
	share := func(part uint64, most int) int { return int(min(max(limit/part, 1), uint64(most))) }
	return descriptors{
		listeners:   share(16, maxListeners),
		healthConns: share(64, maxHealthConns),
		localConns:  share(64, localport.DefaultMaxConns),
	}
}

// openLimit is how many descriptors this process may have open. Go has raised it as far as it may at the start.
func openLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint16
	}
	return limit.Cur
}
