package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"
)

// Times of looking at the kubeconfig.
const (
	// While there is none yet: from the one to the other.
	minPoll = time.Second
	maxPoll = 10 * time.Second
	// A new one counts when it reads the same twice in a row, this far apart: it can be
	// in the middle of being written.
	writingPoll = 200 * time.Millisecond
	// One that was not touched for so long is not being written.
	writtenAfter = 2 * time.Second
	// How often a working one is looked at for changes.
	steadyPoll = 5 * time.Second
)

// configHolder is who meets the faults of the kubeconfig, certHolder those of the client certificate.
const (
	configHolder = "kubeconfig"
	certHolder   = "client certificate"
)

// configWatch follows a kubeconfig and the files it names.
type configWatch struct {
	explicit string
	problems *problems
	log      *slog.Logger
	steady   time.Duration // steadyPoll, but in tests

	current *kubeconfig // the last that was sent
	pending *kubeconfig // read once, to be confirmed
	stamps  []stamp     // of current's files when they were read; nil: look again
	missing time.Duration
	// badSince is since when it cannot be read.
	badSince time.Time
}

// stamp tells whether a file was touched.
type stamp struct {
	size                int64
	inode               uint64
	modified, inodeTime int64 // ns
}

// run sends each complete kubeconfig that differs from the one before, until ctx ends.
func (w *configWatch) run(ctx context.Context, found chan<- *kubeconfig) {
	for {
		k, again := w.look(time.Now())
		if k != nil {
			select {
			case found <- k:
			case <-ctx.Done():
				return
			}
		}
		if sleep(ctx, again) != nil {
			return
		}
	}
}

// look returns a new kubeconfig, if there is one, and when to look again.
func (w *configWatch) look(now time.Time) (*kubeconfig, time.Duration) {
	w.checkCert(now)
	if w.current != nil && w.pending == nil && unchanged(w.current.files, w.stamps) {
		return nil, w.steady
	}
	path, err := findKubeconfig(w.explicit)
	if err != nil {
		return nil, w.none(err)
	}
	k, err := readKubeconfig(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.pending = nil
		return nil, w.none(err)
	case err != nil:
		w.pending = nil
		return nil, w.unreadable(path, err, now)
	}
	w.missing, w.badSince = 0, time.Time{}
	stamps, again := readStamps(k.files), w.steady
	if !settled(stamps, now) {
		// Written lately, perhaps after it was read.
		stamps, again = nil, min(w.steady, writingPoll)
	}
	switch {
	case k.same(w.current):
		k = nil
	case stamps == nil && !k.same(w.pending):
		w.pending = k
		return nil, again
	default:
		w.current = k
		w.checkCert(now)
	}
	w.pending, w.stamps = nil, stamps
	w.works()
	return k, again
}

// unreadable notes that it makes no sense. That is a problem only if it stays so.
func (w *configWatch) unreadable(path string, err error, now time.Time) time.Duration {
	if w.badSince.IsZero() {
		w.badSince = now
	}
	if now.Sub(w.badSince) < writtenAfter {
		return writingPoll
	}
	w.failed(fault{"kubeconfig", path, "", shorten(err) + "; it is read again until it is whole"})
	return min(w.steady, minPoll)
}

// none notes that there is no kubeconfig yet, or any more.
func (w *configWatch) none(err error) time.Duration {
	if w.current != nil {
		w.failed(fault{"no kubeconfig", w.current.path, "", "it is gone: " + shorten(err) + "; what was read of it stays in use"})
		return w.steady
	}
	reason := "waiting for it to be written: " + shorten(err)
	if w.explicit == "" {
		reason += " (or set --kubeconfig)"
	}
	w.failed(fault{"no kubeconfig", "kubeconfig", "", reason})
	w.missing = min(max(2*w.missing, minPoll), maxPoll)
	return w.missing
}

// checkCert tells whether the client certificate is valid now.
func (w *configWatch) checkCert(now time.Time) {
	if w.current == nil || w.current.cert == nil {
		w.problems.works(certHolder)
		return
	}
	cert, path := w.current.cert, w.current.path
	switch {
	case now.After(cert.NotAfter):
		w.problems.failed(certHolder, fault{"client certificate expired", path, "", fmt.Sprintf(
			"the client certificate of %s expired at %s; renew it, with k3s by restarting it", cert.Subject.CommonName, cert.NotAfter.Format(time.RFC3339))})
	case now.Before(cert.NotBefore):
		w.problems.failed(certHolder, fault{"client certificate expired", path, "", fmt.Sprintf(
			"the client certificate of %s is valid only from %s; is this machine's clock right?", cert.Subject.CommonName, cert.NotBefore.Format(time.RFC3339))})
	default:
		w.problems.works(certHolder)
	}
}

func (w *configWatch) failed(f fault) { w.problems.failed(configHolder, f) }
func (w *configWatch) works()         { w.problems.works(configHolder) }

// settled tells whether no file was touched lately, nor in the future of a clock that was reset.
func settled(stamps []stamp, now time.Time) bool {
	for _, s := range stamps {
		if age := now.Sub(time.Unix(0, s.inodeTime)); age < writtenAfter {
			return false
		}
	}
	return true
}

func unchanged(files []string, stamps []stamp) bool {
	return slices.Equal(readStamps(files), stamps)
}

func readStamps(files []string) []stamp {
	stamps := make([]stamp, len(files))
	for i, file := range files {
		stamps[i] = readStamp(file)
	}
	return stamps
}

// readStamp returns the zero stamp for a file that is not there.
func readStamp(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode, s.inodeTime = st.Ino, st.Ctim.Nano()
	}
	return s
}
