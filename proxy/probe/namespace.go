package probe

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy/netns"
)

// patience bounds the wait for a new namespace. It takes a millisecond, but the kernel makes
// none while it is busy with the end of a large one, which can take many seconds.
const patience = 500 * time.Millisecond

// newNamespace makes a network namespace that is gone when the file is closed.
func newNamespace() (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	made := make(chan result, 1)
	go func() {
		var r result
		r.err = netns.OnThread(func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			r.ns, err = netns.OfThread()
			return err
		})
		made <- r
	}()
	select {
	case r := <-made:
		return r.ns, r.err
	case <-time.After(patience):
		go func() { // ends as soon as the kernel answers
			if r := <-made; r.ns != nil {
				r.ns.Close()
			}
		}()
		return nil, fmt.Errorf("make a network namespace: the kernel did not within %v", patience)
	}
}
