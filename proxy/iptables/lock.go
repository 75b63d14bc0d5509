package iptables

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// restoreLocks tells whether iptables-restore takes the xtables lock by itself, and knows -w: from 1.6.2 on. That
// cannot be tried, as those before take an unknown option for nothing.
func (v Variant) restoreLocks() bool {
	var parts []int
	for s := range strings.SplitSeq(v.Version, ".") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return true
		}
		parts = append(parts, n)
	}
	return slices.Compare(parts, []int{1, 6, 2}) >= 0
}

// takeLock takes the lock that all iptables programs take before they change rules. It is let go by closing the file.
func takeLock(ctx context.Context, seconds int) (*os.File, error) {
	// The same variable as iptables has.
	f, err := os.OpenFile(cmp.Or(os.Getenv("XTABLES_LOCKFILE"), "/run/xtables.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the xtables lock: %w", err)
	}
	for deadline := time.Now().Add(time.Duration(seconds) * time.Second); ; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			f.Close()
			return nil, fmt.Errorf("%w: %w", ErrLocked, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
