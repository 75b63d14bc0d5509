package kube

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// limits are the times after which a watch counts as stuck, or as working.
type limits struct {
	// list is how long nothing may come within a list.
	list time.Duration
	// idle is how long nothing may come in a watch: the server sends a bookmark each minute.
	idle time.Duration
	// watch is how long a watch lasts that does not say it.
	watch time.Duration
	// alive is when a watch counts as working on which nothing came yet.
	alive time.Duration
}

var defaultLimits = limits{list: time.Minute, idle: 3 * time.Minute, watch: 10 * time.Minute, alive: 5 * time.Second}

// errQuiet: nothing came for too long.
var errQuiet = errors.New("the server keeps the connection open and sends nothing")

// ending is how a watch ended.
type ending struct {
	lasted time.Duration
	events int
	err    error // nil: the server closed it
}

type watcherOptions struct {
	quiet limits
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
			event = watch.Event{Type: watch.Error, Object: quietStatus(end.err)}
		case e, ok := <-w.in.ResultChan():
			if !ok {
				end.lasted = time.Since(begun)
				w.ended(end)
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

// look takes note of an event.
func (w *watcher) look(event *watch.Event, end *ending) {
	if event.Type == watch.Error {
		if end.err == nil {
			end.err = apierrors.FromObject(event.Object)
		}
		return
	}
	if end.events++; end.events == 1 {
		w.alive()
	}
}

// quietStatus tells the reflector to try anew.
func quietStatus(err error) *metav1.Status {
	status := apierrors.NewGenericServerResponse(http.StatusGatewayTimeout, "watch", schema.GroupResource{}, "", err.Error(), 0, true).Status()
	return &status
}
