package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice/agent/source"
)

const (
	// pageSize is how many objects a list is read at a time when it did not come to its end before.
	// Each time that pages do not either they are halved, down to minPageSize.
	pageSize    = 200
	minPageSize = 25
	// maxBarren is how many pages in a row may hold nothing new. A server that filters
	// may send some that are empty.
	maxBarren = 100
)

// ListWithContext reads the collection. It hands the objects over as they come and returns
// their names, as one item.
func (f *follower) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	f.listing.Lock()
	defer f.listing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.pace.wait(ctx); err != nil {
		return nil, err
	}
	begun := f.tellSlow(ctx)
	version, exist, err := f.readBounded(ctx)
	begun()
	if err != nil {
		f.limit = nextLimit(f.limit, err)
		f.pace.failed(isUnreachable(err))
		if errors.Is(err, errTooLarge) {
			f.pace.notBefore(f.limits.large)
		}
		f.failed(ctx, "list", err)
		f.works("watch") // what it met was before this
		return nil, err
	}
	f.limit = 0
	f.works("list")
	return &internalversion.List{
		ListMeta: metav1.ListMeta{ResourceVersion: version},
		Items:    []runtime.Object{&listed{exist}},
	}, nil
}

// tellSlow makes it a problem when a list takes long, until what it returns is called. What is listed after that is told anew.
func (f *follower) tellSlow(ctx context.Context) (stop func()) {
	after, told := 2*f.limits.list, make(chan struct{}) // longer than nothing may come
	late := time.AfterFunc(after, func() {
		defer close(told)
		if ctx.Err() == nil {
			f.problems.failed(f.holder("list"), fault{"slow", f.client.server, f.name, fmt.Sprintf(
				"the list comes, and is not complete after %v; is the network slow?", after)})
		}
	})
	return func() {
		if !late.Stop() {
			<-told // or the list's end could come first
		}
	}
}

// nextLimit says how to read a list after an error. On a slow network a list, or a large page, may need more time than
// the server gives to one answer. An error that came in place of a list says nothing about that.
func nextLimit(limit int64, err error) int64 {
	slow := errors.Is(err, errBroke) || errors.Is(err, errQuiet)
	switch {
	case limit == 0 && (slow || errors.Is(err, errJunk)):
		return pageSize
	case slow:
		return max(limit/2, minPageSize)
	}
	return limit
}

// readBounded reads the collection, hands it over, and returns the version from which to watch and
// the objects' names. One that was too large is counted first, and nothing of it is handed over while it is: each time
// it could hold other names, and they would pile up in the sink.
func (f *follower) readBounded(ctx context.Context) (version string, exist map[source.Name]struct{}, err error) {
	if f.tooLarge {
		if _, err := f.readAll(ctx, &tally{most: f.most}); err != nil {
			return "", nil, err
		}
		f.tooLarge = false
	}
	t := &tally{most: f.most, exist: map[source.Name]struct{}{}}
	version, err = f.readAll(ctx, t)
	f.tooLarge = errors.Is(err, errTooLarge)
	return version, t.exist, err
}

// readAll reads the collection, in pages or not, into t. It returns the version from which to watch.
func (f *follower) readAll(ctx context.Context, t *tally) (version string, err error) {
	// Without a resourceVersion the list is read as it is now. With "0" it could be older than
	// what another server of the cluster gave before.
	opts := metav1.ListOptions{LabelSelector: f.labelSelector, FieldSelector: f.fieldSelector, Limit: f.limit}
	begun := time.Now()
	for barren := 0; ; {
		before := t.found()
		page, err := f.read(ctx, opts, func(item runtime.Object) error {
			if err := t.count(item); err != nil || t.exist == nil {
				return err
			}
			if o, large := item.(*oversized); large {
				o.tell(f.log, f.kind)
				t.exist[o.Name] = struct{}{}
				return nil
			}
			name, err := f.store.handOver(item)
			t.exist[name] = struct{}{}
			return err
		})
		if err != nil {
			return "", err
		}
		if version == "" {
			version = page.ResourceVersion // a watch from the first page's misses nothing, whatever the others say
		}
		if page.Continue == "" {
			return version, nil
		}
		if barren++; t.found() > before {
			barren = 0
		}
		if page.Continue == opts.Continue || barren >= maxBarren || time.Since(begun) > f.limits.pages {
			return "", fmt.Errorf("%w: the pages of the list have no end", errJunk)
		}
		opts.Continue = page.Continue
	}
}

// read reads a list, or a page of one, and hands each of its items to each as it comes. It
// gives up when nothing comes for too long, and when there is no end.
func (f *follower) read(ctx context.Context, opts metav1.ListOptions, each func(runtime.Object) error) (list metav1.ListMeta, err error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limited, stop := context.WithTimeoutCause(limited, f.limits.answer,
		fmt.Errorf("%w: it was not complete after %v", errBroke, f.limits.answer))
	defer stop()
	quiet := time.AfterFunc(f.limits.list, func() { cancel(fmt.Errorf("%w for %v", errQuiet, f.limits.list)) })
	defer quiet.Stop()
	body, err := f.client.list(limited, f.path, opts)
	quiet.Stop()
	if err == nil {
		defer body.Close()
		list, err = readList(&quietReader{body, quiet, f.limits.list}, f.list(), each)
	}
	if cause := context.Cause(limited); err != nil && cause != nil {
		err = cause
	}
	return list, err
}

// quietReader lets a timer run out when a read brings nothing for the time of limit. How long
// the reader takes with what came does not count.
type quietReader struct {
	io.Reader
	timer *time.Timer
	limit time.Duration
}

// Read implements io.Reader.
func (r *quietReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.limit)
	defer r.timer.Stop()
	return r.Reader.Read(p)
}
