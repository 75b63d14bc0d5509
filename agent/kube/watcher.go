package kube

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// limits are the times after which a watch counts as stuck, or as working.
type limits struct {
	// list is how long nothing may come within a list, answer how long one may take, or a page of one:
	// a server gives a minute to it (--request-timeout).
	list, answer time.Duration
	// pages is how long a list may take in pages, and large how long one that is too large is not read again.
	pages, large time.Duration
	// open is how long it may take until a watch begins. A server begins it at once, even if it has nothing to
	// send; where many come at once, it lets them wait for 15 s at most.
	open time.Duration
	// idle is how long nothing may come in a watch: the server sends a bookmark each minute.
	idle time.Duration
	// watch is how long a watch lasts that does not say it.
	watch time.Duration
	// alive is when a watch counts as working on which nothing came yet.
	alive time.Duration
	// handOver is how long the sink may take with what came.
	handOver time.Duration
}

var defaultLimits = limits{
	list: time.Minute, answer: 10 * time.Minute, pages: time.Hour, large: 10 * time.Minute, open: 30 * time.Second,
	idle: 3 * time.Minute, watch: 10 * time.Minute, alive: 5 * time.Second,
	handOver: 2 * time.Minute,
}

// veryShort is longer than the time within which a watch counts as none for the reflector (client-go's handleAnyWatch).
const veryShort = 1100 * time.Millisecond

var (
	// errQuiet: nothing came for too long.
	errQuiet = errors.New("the server keeps the connection open and sends nothing")
	// errOrder: what changed later came first, so that nobody knows what is true now.
	errOrder = errors.New("changes come in another order than they happened")
)

// ending is how a watch ended.
type ending struct {
	lasted time.Duration
	events int
	err    error // nil: the server closed it
}

type watcherOptions struct {
	quiet limits
	want  reflect.Type // of the objects
	from  string       // the version after which the watch begins
	// They are called by the goroutine that feeds ResultChan: alive when the watch works, ended
	// before ResultChan is closed or an error is passed on (not when the watch was stopped), closed
	// when all is over.
	alive, closed func()
	ended         func(ending)
}

// watcher passes the events of a watch on and looks at them.
type watcher struct {
	watcherOptions
	in   watch.Interface
	out  chan watch.Event
	done chan struct{}
	once sync.Once
}

func newWatcher(in watch.Interface, o watcherOptions) *watcher {
	w := &watcher{watcherOptions: o, in: in, out: make(chan watch.Event), done: make(chan struct{})}
	go w.run()
	return w
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.once.Do(func() { close(w.done) }) }

func (w *watcher) run() {
	defer close(w.out)
	defer w.closed()
	defer w.in.Stop()
	begun := time.Now()
	end := ending{}
	alive := time.NewTimer(w.quiet.alive)
	defer alive.Stop()
	idle := time.NewTimer(w.quiet.idle)
	defer idle.Stop()
	for {
		var event watch.Event
		select {
		case <-w.done:
			return
		case <-alive.C:
			w.alive()
			continue
		case <-idle.C:
			end.err = fmt.Errorf("%w for %v", errQuiet, w.quiet.idle)
			event = failing(end.err)
		case e, ok := <-w.in.ResultChan():
			if !ok {
				end.lasted = time.Since(begun)
				w.ended(end)
				w.outlast(begun, end.events)
				return
			}
			event = e
		}
		w.look(&event, &end)
		if end.err != nil {
			end.lasted = time.Since(begun)
			w.ended(end)
		}
		select {
		case w.out <- event:
		case <-w.done:
			return
		}
		if end.err != nil {
			return
		}
		idle.Reset(w.quiet.idle)
	}
}

// outlast keeps a watch open for the reflector that was closed at once. Of one that lasted for less than a second and brought nothing
// it believes that the server needs to send everything once more; a server, or something before it, that closes all watches would be
// read as a whole again and again.
func (w *watcher) outlast(begun time.Time, events int) {
	if events > 0 {
		return
	}
	t := time.NewTimer(time.Until(begun.Add(veryShort)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.done:
	}
}

// look takes note of an event. What no server sends becomes an error.
func (w *watcher) look(event *watch.Event, end *ending) {
	if end.err != nil {
		return
	}
	if event.Type == watch.Error {
		end.err = apierrors.FromObject(event.Object)
		return
	}
	err := w.check(event)
	if err == nil {
		err = w.follows(event)
	}
	if err != nil {
		end.err, *event = err, failing(err)
		return
	}
	if end.events++; end.events == 1 {
		w.alive()
	}
}

// check tells whether an event is a server's. The reflector would pass over an object of another kind, and begin the next
// watch at any version when it had read an empty one.
func (w *watcher) check(event *watch.Event) error {
	if reflect.TypeOf(event.Object) != w.want {
		return fmt.Errorf("%w: a watch of %v sends a %T", errJunk, w.want, event.Object)
	}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		return checkObject(event.Object)
	case watch.Bookmark:
		if o, ok := event.Object.(metav1.Object); ok && isVersion(o.GetResourceVersion()) {
			return nil
		}
		return fmt.Errorf("%w: a bookmark without a resourceVersion", errJunk)
	}
	return fmt.Errorf("%w: an event of type %.100q", errJunk, event.Type)
}

// follows tells whether an event is not older than the one before. A server sends all in their order; where something between loses
// it, only a list tells what is true. A bookmark that is older says nothing.
func (w *watcher) follows(event *watch.Event) error {
	o := event.Object.(metav1.Object) // as check found
	version := o.GetResourceVersion()
	order, err := resourceversion.CompareResourceVersion(version, w.from)
	switch {
	case err != nil || order >= 0:
		w.from = version // those that cannot be compared are no ground to read everything again
	case event.Type == watch.Bookmark:
		o.SetResourceVersion(w.from)
	default:
		return fmt.Errorf("%w: resourceVersion %s of %s/%s after %s", errOrder, version, o.GetNamespace(), o.GetName(), w.from)
	}
	return nil
}

// failing tells the reflector to try anew, with a list if the order was lost.
func failing(err error) watch.Event {
	if errors.Is(err, errOrder) {
		status := apierrors.NewResourceExpired(err.Error()).Status()
		return watch.Event{Type: watch.Error, Object: &status}
	}
	status := apierrors.NewGenericServerResponse(http.StatusGatewayTimeout, "watch", schema.GroupResource{}, "", err.Error(), 0, true).Status()
	return watch.Event{Type: watch.Error, Object: &status}
}
