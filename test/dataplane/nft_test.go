package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/agent/source"
	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

func newNFT(l *lab.Lab, f proxy.Family) (subject, error) {
	s := &writerSubject{
		lab:      l,
		objects:  map[change]change{},
		services: map[proxy.ServiceName]bool{},
		open: func() (proxy.Writer, error) {
			return nft.New(nft.Options{Family: f, NetNS: l.Node.FD(), Log: slog.New(slog.DiscardHandler)})
		},
		leftovers: func(ctx context.Context) ([]string, error) { return nftLeftovers(ctx, l, f) },
	}
	s.config = defaultConfig(l, f)
	return s, s.start(context.Background())
}

// nftTable is the table's name as nft takes it.
func nftTable(f proxy.Family) string {
	if f == proxy.IPv6 {
		return "ip6 " + nft.TableName
	}
	return "ip " + nft.TableName
}

// nftLeftovers lists the elements of all sets, and the chains that a table without Services has not.
func nftLeftovers(ctx context.Context, l *lab.Lab, f proxy.Family) ([]string, error) {
	out, err := l.Node.Run(ctx, "", "nft", append([]string{"-j", "list", "table"}, strings.Fields(nftTable(f))...)...)
	if err != nil {
		return nil, err
	}
	type named struct {
		Name string            `json:"name"`
		Elem []json.RawMessage `json:"elem"`
	}
	var listing struct {
		NFTables []struct{ Set, Map, Chain *named }
	}
	if err := json.Unmarshal([]byte(out), &listing); err != nil {
		return nil, fmt.Errorf("read nft's listing: %w", err)
	}
	var left []string
	for _, o := range listing.NFTables {
		for _, set := range []*named{o.Set, o.Map} {
			if set != nil && len(set.Elem) > 0 {
				left = append(left, fmt.Sprintf("%s: %s", set.Name, set.Elem))
			}
		}
		if o.Chain != nil && strings.ContainsAny(o.Chain.Name, "0123456789") {
			left = append(left, "chain "+o.Chain.Name)
		}
	}
	return left, nil
}

// writerSubject is this module's planner over one of its writers.
type writerSubject struct {
	lab       *lab.Lab
	open      func() (proxy.Writer, error)
	leftovers func(context.Context) ([]string, error)

	config nodeConfig
	writer proxy.Writer
	state  *proxy.State
	// objects by their change without the Object.
	objects  map[change]change
	services map[proxy.ServiceName]bool
}

// start opens a writer and makes the kernel equal to the objects.
func (s *writerSubject) start(ctx context.Context) error {
	var err error
	if s.writer, err = s.open(); err != nil {
		return err
	}
	s.state = proxy.NewState(s.config.Family, s.config.Settings)
	for name := range s.services {
		s.state.Set(name, s.plan(name, s.writer.Slots))
	}
	_, err = s.writer.Reconcile(ctx, s.state)
	return err
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
	for name := range s.services {
		if err := s.apply(ctx, name); err != nil {
			return err
		}
	}
	return nil
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
	for name := range dirty {
		if err := s.apply(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// apply plans one Service and writes what that changes.
func (s *writerSubject) apply(ctx context.Context, name proxy.ServiceName) error {
	delta := s.state.Set(name, s.plan(name, s.state.Slots))
	if delta.Empty() {
		return nil
	}
	if _, err := s.writer.Apply(ctx, &delta); err != nil {
		return fmt.Errorf("apply change of %s: %w", name, err)
	}
	return nil
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
	if stats.Added+stats.Removed > 0 {
		return fmt.Errorf("the changes did not bring the kernel to the state: Reconcile had to do %+v", stats)
	}
	return nil
}

func (s *writerSubject) Leftovers(ctx context.Context) ([]string, error) { return s.leftovers(ctx) }

func (s *writerSubject) Close() error {
	return errors.Join(s.writer.Cleanup(context.Background()), s.writer.Close())
}
