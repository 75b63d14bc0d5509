package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/source"
)

const (
	// pageSize is how many objects a list is read at a time, where the server cannot stream
	// it. A page with full slices (100 endpoints) has some 5 MB.
	pageSize = 200
	// pageTimeout is for one page; the API server itself gives up after a minute.
	pageTimeout = time.Minute
	// absentRetry is how soon a collection is asked for again that the server does not have.
	absentRetry = 10 * time.Minute
	// maxCuts is how many streamed lists may be cut off in a row before pages are tried.
	maxCuts = 2
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
	cuts  int  // streamed lists that were cut off, in a row
	hasty int  // watches that were closed at once, in a row
	lost  bool // a watch ended before its time, or could not be opened
	anew  bool // the server lost what it had: no resourceVersion that was read holds
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

// ListWithContext reads the collection page by page. It hands the objects over and
// returns their keys. The reflector's own pager would ask for all at once when the
// pages expire before they are read; here the list starts again.
func (f *follower) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	f.listing.Lock()
	defer f.listing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.pace.wait(ctx); err != nil {
		return nil, err
	}
	list := &internalversion.List{}
	// Without a resourceVersion the list is read as it is now, and in pages: with one, and
	// with "0", servers send the whole list whatever the limit says.
	opts := metav1.ListOptions{Limit: pageSize, LabelSelector: f.labelSelector, FieldSelector: f.fieldSelector}
	for {
		page, err := f.page(ctx, opts, list)
		if err != nil {
			f.pace.failed(isUnreachable(err))
			f.failed(ctx, "list", err)
			return nil, err
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			list.ResourceVersion = page.GetResourceVersion()
			f.works("list")
			f.anew = false
			return list, nil
		}
	}
}

// page reads one page, hands it over, and adds its keys to list.
func (f *follower) page(ctx context.Context, opts metav1.ListOptions, list *internalversion.List) (metav1.ListInterface, error) {
	pageCtx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	page, err := f.client.list(pageCtx, f.path, opts)
	if err != nil {
		return nil, err
	}
	return page, meta.EachListItemWithAlloc(page.(runtime.Object), func(item runtime.Object) error {
		key, err := f.store.handOver(item)
		list.Items = append(list.Items, &listed{key})
		return err
	})
}

// WatchWithContext opens a watch; with SendInitialEvents it begins with all objects.
func (f *follower) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if initial && f.cuts >= maxCuts {
		f.cuts = 0
		return nil, errCut // so the reflector lists
	}
	if err := f.pace.wait(ctx); err != nil {
		return nil, err
	}
	opts.LabelSelector, opts.FieldSelector = f.labelSelector, f.fieldSelector
	if initial && f.anew {
		opts.ResourceVersion = ""
	}
	if !initial && f.lost {
		if err := f.checkBehind(ctx, opts.ResourceVersion); err != nil {
			return nil, f.notOpened(ctx, err, initial)
		}
	}
	lasts := f.limits.watch
	if opts.TimeoutSeconds != nil {
		lasts = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	// A server that does not keep to the time is cut off soon after it.
	watchCtx, cancel := context.WithTimeout(ctx, lasts+time.Minute)
	w, err := f.client.watch(watchCtx, f.path, opts)
	if err != nil {
		cancel()
		return nil, f.notOpened(ctx, err, initial)
	}
	return newWatcher(w, watcherOptions{
		quiet:   f.limits,
		initial: initial,
		alive:   func() { f.works("watch") },
		synced:  func() { f.synced(ctx) },
		ended:   func(e ending) { f.ended(ctx, e, lasts) },
		closed:  cancel,
	}), nil
}

// checkBehind tells whether the server is older than what was read from it, as after
// restoring a backup. A watch that starts at a version of the future is silent until the
// server has come so far, and what changed meanwhile is never sent.
func (f *follower) checkBehind(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	page, err := f.client.list(ctx, f.path, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(page.GetResourceVersion(), version); err != nil || order >= 0 {
		f.lost = false
		return nil // versions that cannot be compared are no ground to read everything again
	}
	f.log.Warn("the API server has older data than before, as after restoring a backup; everything is read again",
		"resource", f.name, "resourceVersion", page.GetResourceVersion(), "before", version)
	f.anew, f.lost = true, false
	return apierrors.NewResourceExpired("the server is behind " + version)
}

// notOpened notes that a watch could not be opened, and says what to tell the reflector.
func (f *follower) notOpened(ctx context.Context, err error, initial bool) error {
	f.lost = true
	switch {
	case outdated(err):
		f.pace.failed(false)
		return err
	case initial && !isUnreachable(err) && !apierrors.IsTooManyRequests(err):
		// Servers have many ways to say that they do not stream lists. The reflector lists now,
		// and if it is something else, that meets it, too.
		f.log.Debug("the list is not streamed", "resource", f.name, "error", err)
		return err
	}
	f.pace.failed(isUnreachable(err))
	f.failed(ctx, "watch", err)
	return resumable{err}
}

// synced notes that a streamed list is complete.
func (f *follower) synced(ctx context.Context) {
	if ctx.Err() == nil {
		f.works("list")
		f.anew, f.cuts = false, 0
	}
}

// ended notes how a watch ended.
func (f *follower) ended(ctx context.Context, e ending, lasts time.Duration) {
	if ctx.Err() != nil {
		return
	}
	// After most errors within a streamed list the reflector lists, which need not wait.
	again := e.err == nil || outdated(e.err) || apierrors.IsTooManyRequests(e.err)
	if !e.initial || again {
		f.pace.watched(e.lasted)
	}
	f.lost = f.lost || e.lasted < lasts-time.Second
	if e.initial && e.err == nil {
		f.cuts++
	}
	if e.err != nil || e.events > 0 || e.lasted >= time.Second {
		f.hasty = 0
	} else {
		f.hasty++
	}
	switch {
	case f.hasty >= maxHasty:
		f.failed(ctx, "watch", errCut)
	case e.err == nil || outdated(e.err):
	case e.initial && !again:
		f.log.Debug("the streamed list failed", "resource", f.name, "error", e.err) // as in notOpened
	default:
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
