package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/source"
)

const (
	// absentRetry is how soon a collection is asked for again that the server does not have.
	absentRetry = 10 * time.Minute
	// maxHasty is how many watches may be closed at once in a row before it is a problem.
	maxHasty = 3
)

// errCut: the server closes watches as soon as they are open.
var errCut = errors.New("the server closes the watch at once")

// follower is the reflector's way to one collection: it lists and watches,
// notes what goes wrong, and paces the requests. It implements cache.ListerWatcherWithContext.
type follower struct {
	resource
	client   *client
	store    *sinkStore
	problems *problems
	log      *slog.Logger
	limits   limits
	// refused is called when the server does not have the collection or does not give it.
	refused func(source.Kind)

	// listing is held by List, which the reflector does not wait for when its context ends.
	listing sync.Mutex

	// These belong to the reflector's goroutine, or while it waits for a list or a watch, to that
	// one's. When the context has ended that is not so any more, and nobody touches them.
	pace  pace
	hasty int   // watches that were closed at once, in a row
	lost  bool  // a watch ended before its time, or could not be opened
	limit int64 // of the objects in a page; 0: lists are read as a whole
	// tooLarge: the last list had no end that could be come to.
	tooLarge bool
	// forbidden is since when the server has refused us, without an error of another kind.
	forbidden time.Time
}

// List implements cache.Lister.
func (f *follower) List(opts metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), opts)
}

// Watch implements cache.Watcher.
func (f *follower) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), opts)
}

// IsWatchListSemanticsUnSupported tells the reflector not to ask for streamed lists
// (KEP-3157): the server sends each of their objects in a frame of its own, which takes it
// five to ten times as long as a list, and a list is not held as a whole here either.
func (f *follower) IsWatchListSemanticsUnSupported() bool { return true }

// WatchWithContext opens a watch.
func (f *follower) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.pace.wait(ctx); err != nil {
		return nil, err
	}
	opts.LabelSelector, opts.FieldSelector = f.labelSelector, f.fieldSelector
	if f.lost {
		if err := f.checkBehind(ctx, opts.ResourceVersion); err != nil {
			return nil, f.notOpened(ctx, err)
		}
	}
	lasts := f.limits.watch
	if opts.TimeoutSeconds != nil {
		lasts = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	// A server that does not keep to the time is cut off soon after it.
	limited, cancel := context.WithTimeout(ctx, lasts+time.Minute)
	w, err := f.open(limited, opts)
	if err != nil {
		cancel()
		return nil, f.notOpened(ctx, err)
	}
	f.problems.begins(f.holder("watch"))
	return newWatcher(w, watcherOptions{
		quiet:  f.limits,
		want:   f.store.want,
		from:   opts.ResourceVersion,
		alive:  func() { f.works("watch") },
		ended:  func(e ending) { f.ended(ctx, e, lasts) },
		closed: cancel,
	}), nil
}

// open opens a watch. It gives up when the server does not begin to answer.
func (f *follower) open(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(f.limits.open, func() { cancel(fmt.Errorf("%w for %v", errQuiet, f.limits.open)) })
	w, err := f.client.watch(ctx, f.path, opts, func(o *oversized) { o.tell(f.log, f.kind) })
	late.Stop()
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return w, err
	case err == nil:
		w.Stop() // it came just too late
	}
	return nil, context.Cause(ctx)
}

// checkBehind tells whether the server is older than what was read from it, as after
// restoring a backup. A watch that starts at a version of the future is silent until the
// server has come so far, and what changed meanwhile is never sent.
func (f *follower) checkBehind(ctx context.Context, version string) error {
	page, err := f.read(ctx, metav1.ListOptions{Limit: 1}, func(runtime.Object) error { return nil })
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(page.ResourceVersion, version); err != nil || order >= 0 {
		f.lost = false
		return nil // versions that cannot be compared are no ground to read everything again
	}
	f.log.Warn("the API server has older data than before, as after restoring a backup; everything is read again",
		"resource", f.name, "resourceVersion", page.ResourceVersion, "before", version)
	f.lost = false
	return apierrors.NewResourceExpired("the server is behind " + version)
}

// notOpened notes that a watch could not be opened, and says what to tell the reflector.
func (f *follower) notOpened(ctx context.Context, err error) error {
	f.lost = true
	f.pace.failed(isUnreachable(err))
	if outdated(err) {
		return err // the reflector reads everything
	}
	f.failed(ctx, "watch", err)
	return resumable{err}
}

// ended notes how a watch ended.
func (f *follower) ended(ctx context.Context, e ending, lasts time.Duration) {
	if ctx.Err() != nil {
		return
	}
	f.pace.watched(e.lasted)
	f.lost = f.lost || e.lasted < lasts-time.Second
	if e.err != nil || e.events > 0 || e.lasted >= time.Second {
		f.hasty = 0
	} else {
		f.hasty++
	}
	switch {
	case f.hasty >= maxHasty:
		f.failed(ctx, "watch", errCut)
	case e.err != nil && !outdated(e.err):
		f.failed(ctx, "watch", e.err)
	}
}

// failed notes an error of the network or the server.
func (f *follower) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return // it is the context's
	}
	switch {
	case apierrors.IsNotFound(err):
		f.refused(f.kind)
	case !apierrors.IsForbidden(err):
		f.forbidden = time.Time{}
	case f.forbidden.IsZero():
		f.forbidden = time.Now()
	case time.Since(f.forbidden) >= starting:
		f.refused(f.kind)
	}
	if apierrors.IsNotFound(err) && !f.needed {
		f.log.Debug("the server does not have a collection", "resource", f.name)
		f.pace.notBefore(absentRetry)
		f.works(verb)
		return
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.pace.notBefore(min(time.Duration(seconds)*time.Second, maxRetryAfter))
	}
	var after time.Duration
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && !isJunk(status.Status()) {
		after = starting
	}
	f.problems.failing(f.holder(verb), describe(err, f.client.server, f.name), after)
}

func (f *follower) works(verb string) { f.problems.works(f.holder(verb)) }

func (f *follower) holder(verb string) string { return f.name + " " + verb }

// outdated tells whether the server does not know a resourceVersion any more, or not yet.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// resumable is an error after which the reflector tries the same watch again. Of most
// errors it believes that the server needs to send everything once more; only for a
// refused connection and for 429 it does not. To the server's restarts and the network's
// cuts belong many more.
type resumable struct{ error }

// Unwrap returns the error itself.
func (r resumable) Unwrap() error { return r.error }

// As lets the error pass for ECONNREFUSED.
func (r resumable) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	if ok {
		*errno = syscall.ECONNREFUSED
	}
	return ok
}
