package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/agent/source"
	"sluice/proxy"
	"sluice/proxy/conntrack"
	"sluice/test/lab"
)

// writerSubject is this module's planner over one of its writers.
type writerSubject struct {
	writerKind

	config nodeConfig
	writer proxy.Writer
	state  *proxy.State
	flows  *conntrack.Conn
	// objects by their change without the Object.
	objects  map[change]change
	services map[proxy.ServiceName]bool
}

// writerKind is what differs between writers.
type writerKind struct {
	open      func() (proxy.Writer, error)
	leftovers func(context.Context) ([]string, error)
	// compare tells what is in the kernel and not as a state wants it.
	compare func(ctx context.Context, s *proxy.State, differs func(proxy.Difference)) error
	// tracers follow packets through the writer's rules: through those that are planned, and those that the kernel has.
	tracers map[string]openTracer
}

// openTracer opens a tracer for a state's rules, and returns what closes it.
type openTracer func(context.Context, *proxy.State) (proxy.Tracer, func(), error)

func newWriterSubject(l *lab.Lab, f proxy.Family, kind writerKind) (subject, error) {
	flows, err := conntrack.Open(conntrack.Options{NetNS: l.Node.FD()})
	if err != nil {
		return nil, err
	}
	s := &writerSubject{
		writerKind: kind, config: defaultConfig(l, f), flows: flows,
		objects: map[change]change{}, services: map[proxy.ServiceName]bool{},
	}
	return s, s.start(context.Background())
}

// start opens a writer and makes the kernel equal to the objects.
func (s *writerSubject) start(ctx context.Context) error {
	var err error
	if s.writer, err = s.open(); err != nil {
		return err
	}
	s.state = s.fromScratch(s.writer.Slots)
	// The writer before this one is closed, but a child process that another test starts just now
	// may still hold a copy of its socket, which owns the table, for the moment between fork and exec.
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		_, err = s.writer.Reconcile(ctx, s.state)
		if !errors.Is(err, unix.EPERM) || time.Now().After(deadline) {
			return err
		}
	}
}

// fromScratch plans all objects anew.
func (s *writerSubject) fromScratch(slots proxy.SlotsFunc) *proxy.State {
	state := proxy.NewState(s.config.Family, s.config.Settings)
	for name := range s.services {
		state.Set(name, s.plan(name, slots))
	}
	return state
}

func (s *writerSubject) plan(name proxy.ServiceName, slots proxy.SlotsFunc) *proxy.ServicePlan {
	svc := s.objects[change{Kind: source.Service, Namespace: name.Namespace, Name: name.Name}]
	if svc.Object == nil {
		return nil
	}
	var endpoints []*discoveryv1.EndpointSlice
	for _, o := range s.objects {
		if slice, ok := o.Object.(*discoveryv1.EndpointSlice); ok {
			endpoints = append(endpoints, slice)
		}
	}
	return proxy.PlanService(&s.config.Node, svc.Object.(*corev1.Service), endpoints, slots)
}

func (s *writerSubject) Configure(ctx context.Context, c nodeConfig) error {
	s.config = c
	if s.state.SetSettings(c.Settings) {
		if _, err := s.writer.Reconcile(ctx, s.state); err != nil {
			return fmt.Errorf("reconcile changed settings: %w", err)
		}
	}
	return s.apply(ctx, s.services)
}

func (s *writerSubject) Set(ctx context.Context, changes []change) error {
	dirty := map[proxy.ServiceName]bool{}
	for _, c := range changes {
		key := c
		key.Object = nil
		switch c.Kind {
		case source.Service:
			name := proxy.ServiceName{Namespace: c.Namespace, Name: c.Name}
			dirty[name], s.services[name] = true, true
		case source.EndpointSlice:
			for _, o := range []change{s.objects[key], c} { // the Services it belonged to and belongs to
				if o.Object != nil {
					dirty[proxy.ServiceName{Namespace: c.Namespace, Name: o.Object.GetLabels()[discoveryv1.LabelServiceName]}] = true
				}
			}
		}
		if c.Object != nil {
			s.objects[key] = c
		} else {
			delete(s.objects, key)
		}
	}
	return s.apply(ctx, dirty)
}

// apply plans Services and writes what that changes, in one go.
func (s *writerSubject) apply(ctx context.Context, services map[proxy.ServiceName]bool) error {
	var delta proxy.Delta
	for name := range services {
		proxy.Merge(&delta, s.state.Set(name, s.plan(name, s.state.Slots)))
	}
	if delta.Empty() {
		return nil
	}
	if _, err := s.writer.Apply(ctx, &delta); err != nil {
		return fmt.Errorf("apply changes: %w", err)
	}
	if !delta.NeedsFlowCheck() {
		return nil
	}
	removed := delta.RemovedFrontends()
	_, err := s.flows.DeleteStale(ctx, s.config.Family, func(f proxy.Flow) bool { return s.state.StaleFlow(f, removed) })
	return err
}

func (s *writerSubject) Restart(ctx context.Context) error {
	return errors.Join(s.writer.Close(), s.start(ctx))
}

// Settled reconciles: after changes that were all applied that must find nothing to do.
func (s *writerSubject) Settled(ctx context.Context) error {
	stats, err := s.writer.Reconcile(ctx, s.state)
	if err != nil {
		return err
	}
	if stats.Added+stats.Removed > 0 || len(stats.Found) > 0 {
		return fmt.Errorf("the changes did not bring the kernel to the state: Reconcile had to do %+v", stats)
	}
	return nil
}

func (s *writerSubject) Leftovers(ctx context.Context) ([]string, error) { return s.leftovers(ctx) }

func (s *writerSubject) Close() error {
	s.state = proxy.NewState(s.config.Family, proxy.Settings{}) // what is predicted from now on
	return errors.Join(s.writer.Cleanup(context.Background()), s.writer.Close(), s.flows.Close())
}
