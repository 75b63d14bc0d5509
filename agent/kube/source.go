// Package kube is the API server as a source of objects: it lists and watches
// Services, EndpointSlices, ServiceCIDRs and this node's Node, and keeps none of them.
package kube

import (
	"context"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"sluice/agent/source"
)

// Options are what a Source needs to know.
type Options struct {
	// Kubeconfig is the path of a kubeconfig; it need not exist yet. Empty: the first that
	// exists of Kubeconfigs.
	Kubeconfig string
	// NodeName is the name of this node's Node object. Empty: what NodeName finds when
	// the kubeconfig is there.
	NodeName string
	// Log is the logger; nil discards.
	Log *slog.Logger
	// InStep, if set, is told how far the sink is in step with the server: everything up to
	// resourceVersion was accepted by the sink before. It is called when a kind was read
	// as a whole, and for bookmarks, which the server sends each minute; at most once a second for
	// a kind, one call at a time for a kind.
	InStep func(kind source.Kind, resourceVersion string)
	// Large, if set, is called when an object came that took much memory for a moment.
	Large func()
}

// Source is an API server. It implements source.Source.
type Source struct {
	opts     Options
	log      *slog.Logger
	problems *problems
	events   *poster
	using    atomic.Pointer[kubeconfig]
	limits   limits
	poll     time.Duration
}

var _ source.Source = (*Source)(nil)

// New makes a Source. It does nothing until Run.
func New(o Options) *Source {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Source{
		opts: o, log: log, problems: newProblems(log), events: newPoster(log),
		limits: defaultLimits, poll: steadyPoll,
	}
	// As kube-proxy does.
	s.Post(Event{Type: corev1.EventTypeNormal, Reason: "Starting", Action: "StartKubeProxy"})
	return s
}

// String implements source.Source.
func (s *Source) String() string {
	if k := s.using.Load(); k != nil {
		return "API server " + k.rest.Host
	}
	if s.opts.Kubeconfig != "" {
		return "API server of " + s.opts.Kubeconfig
	}
	return "API server"
}

// Post posts an event about an object of the cluster, when the server can be reached.
// It does not wait; what is too much, or refused, is dropped.
func (s *Source) Post(e Event) { s.events.post(e) }

// Identity returns what is known of the cluster that is followed; false before a
// kubeconfig was read.
func (s *Source) Identity() (Identity, bool) {
	k := s.using.Load()
	if k == nil {
		return Identity{}, false
	}
	return k.identity, true
}

// Server returns the address of the server that is followed, as the kubeconfig has it; invalid before one was read, or if it has a name.
func (s *Source) Server() netip.Addr {
	k := s.using.Load()
	if k == nil {
		return netip.Addr{}
	}
	return serverAddr(k.rest.Host)
}

// Run implements source.Source. It returns when ctx ends, or with the sink's error: what the sink
// did not accept would be missing for ever.
func (s *Source) Run(parent context.Context, sink source.Sink) error {
	ctx, cancel := context.WithCancelCause(parent)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)

	out := newOutbox(sink, s.problems, s.limits.handOver)
	running.Go(func() { cancel(out.run(ctx)) })
	running.Go(func() { s.problems.run(ctx, sink) })
	configs := make(chan *kubeconfig)
	watch := configWatch{explicit: s.opts.Kubeconfig, problems: s.problems, log: s.log, steady: s.poll}
	running.Go(func() { watch.run(ctx, configs) })

	first := newFirstRead(sink)
	for {
		select {
		case <-ctx.Done():
			if parent.Err() != nil {
				return nil
			}
			return context.Cause(ctx)
		case k := <-configs:
			for k != nil {
				first.begin()
				k = s.follow(ctx, k, configs, func(ctx context.Context, c *client, r resource) *follower {
					return s.newFollower(ctx, c, r, out, first)
				})
			}
		}
	}
}

// follow follows the server of k until ctx ends or another kubeconfig comes, which it
// returns. Everything is read anew then: it can be another cluster, and credentials change rarely.
func (s *Source) follow(ctx context.Context, k *kubeconfig, configs <-chan *kubeconfig,
	newFollower func(context.Context, *client, resource) *follower) *kubeconfig {

	node := s.nodeName(k)
	c, err := newClient(k.rest)
	if err != nil {
		s.problems.failed(configHolder, fault{"kubeconfig", k.path, "", shorten(err) + "; it is read again when it changes"})
		return next(ctx, configs)
	}
	s.using.Store(k)
	s.events.node = node
	s.log.Info("following an API server", "server", c.server, "kubeconfig", k.path, "node", node)

	genCtx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, r := range resources(node) {
		f := newFollower(genCtx, c, r)
		running.Go(func() { reflectorOf(genCtx, f).RunWithContext(genCtx) })
		defer func() {
			f.listing.Lock() // a list that the reflector did not wait for
			defer f.listing.Unlock()
			f.works("list")
			f.works("watch")
		}()
	}
	running.Go(func() { s.events.run(genCtx, c) })
	defer c.close()
	defer running.Wait()
	defer cancel()
	return next(ctx, configs)
}

// next waits for a kubeconfig; nil: ctx ended.
func next(ctx context.Context, configs <-chan *kubeconfig) *kubeconfig {
	select {
	case k := <-configs:
		return k
	case <-ctx.Done():
		return nil
	}
}

func (s *Source) nodeName(k *kubeconfig) string {
	if s.opts.NodeName != "" {
		return s.opts.NodeName
	}
	name, from, err := NodeName(k.path)
	if err != nil {
		s.log.Error("this node's Node object is not followed", "error", err)
		return ""
	}
	s.log.Info("this node's name", "node", name, "from", from)
	return name
}

func (s *Source) newFollower(ctx context.Context, c *client, r resource, out *outbox, first *firstRead) *follower {
	return &follower{
		resource: r, client: c, problems: s.problems, log: s.log, limits: s.limits,
		store: &sinkStore{
			ctx: ctx, kind: r.kind, want: reflect.TypeOf(r.object), out: out,
			inStep: s.opts.InStep, large: s.opts.Large, replaced: first.done,
		},
		refused: func(kind source.Kind) {
			if !r.needed {
				first.done(kind)
			}
		},
	}
}

// reflectorOf makes the reflector of a follower.
func reflectorOf(ctx context.Context, f *follower) *cache.Reflector {
	return cache.NewReflectorWithOptions(f, f.object, f.store, cache.ReflectorOptions{
		Name: f.name, TypeDescription: string(f.kind),
		Clock: endingClock{ctx: ctx},
		// The follower has its own pauses. The reflector's would begin anew only after two minutes without one.
		Backoff: &wait.Backoff{Duration: 10 * time.Millisecond},
	})
}

// firstRead waits until each kind was read once from the same server, and tells the sink.
type firstRead struct {
	sink source.Sink
	mu   sync.Mutex
	left map[source.Kind]struct{}
	told bool
}

func newFirstRead(sink source.Sink) *firstRead {
	f := &firstRead{sink: sink, left: map[source.Kind]struct{}{}}
	f.begin()
	return f
}

// begin notes that everything is read anew, perhaps from another cluster. What was read of some kinds before does not
// count, unless the sink was told already.
func (f *firstRead) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told {
		return
	}
	for _, k := range source.Kinds {
		f.left[k] = struct{}{}
	}
}

// done notes that a kind was read, or cannot be and is not needed.
func (f *firstRead) done(kind source.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told {
		return
	}
	if delete(f.left, kind); len(f.left) == 0 {
		f.told = true
		f.sink.Synced()
	}
}
