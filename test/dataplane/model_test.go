package dataplane

import (
	"context"
	"flag"
	"maps"
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sluice/agent/source"
	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/world"
)

// The model's random changes: the same each time, more or others by hand.
var (
	modelSeed  = flag.Uint64("model.seed", 1, "seed of the model's random changes")
	modelSteps = flag.Int("model.steps", 60, "how many changes the model makes with each writer")
)

// lifetime is how many changes a writer lives for before it is restarted.
const lifetime = 15

// TestKernelFollowsObjects changes objects, and what the node is, at random. After each change what came about step by step is what
// a plan of all objects from scratch has, and what is read back from the kernel is both; a writer that starts then finds nothing to do.
func TestKernelFollowsObjects(t *testing.T) {
	for name := range subjects {
		for _, f := range proxy.Families {
			t.Run(name+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, lab.Options{})
				if ours, ok := startSubject(t, l, f, name).(*writerSubject); ok {
					follow(t, l, f, ours)
				} else {
					t.Skip("nothing is known of what another proxy plans")
				}
			})
		}
	}
}

func follow(t *testing.T, l *lab.Lab, f proxy.Family, s *writerSubject) {
	ctx := t.Context()
	w := world.New(*modelSeed, map[proxy.Family]map[string]netip.Addr{proxy.IPv4: l.Names(proxy.IPv4), proxy.IPv6: l.Names(proxy.IPv6)})
	config := defaultConfig(l, f)
	config.Zone = world.Zone
	must := func(step int, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("seed %d, change %d: %v; the objects:\n%v", *modelSeed, step, err, w)
		}
	}
	must(0, s.Configure(ctx, config))
	frontends := 0
	for step := 1; step <= *modelSteps; step++ {
		must(step, s.Set(ctx, changesOf(w.Step())))
		if w.Often(20) {
			changeNode(w, l, &config)
			must(step, s.Configure(ctx, config))
		}
		s.equal(t, step, w)
		frontends = max(frontends, len(maps.Collect(s.state.Routes())))
		if step%lifetime == 0 {
			must(step, s.Restart(ctx))
			must(step, s.Settled(ctx))
			s.equal(t, step, w)
		}
	}
	if frontends < 8 {
		t.Errorf("there were at most %d frontends at a time: too few to find anything", frontends)
	}
	must(*modelSteps, s.Set(ctx, changesOf(w.End())))
	left, err := s.Leftovers(ctx)
	must(*modelSteps, err)
	if len(left) > 0 {
		t.Errorf("without objects there is still %q", left)
	}
}

// equal compares the state, the objects planned from scratch, and the kernel.
func (s *writerSubject) equal(t *testing.T, step int, w *world.World) {
	t.Helper()
	scratch := s.fromScratch(s.state.Slots)
	what := func(have, want *proxy.State) (missing []proxy.Frontend) {
		routes := maps.Collect(have.Routes())
		for f, r := range want.Routes() {
			if has := routes[f]; !reflect.DeepEqual(has, r) {
				missing = append(missing, f)
			}
		}
		return missing
	}
	if a, b := what(s.state, scratch), what(scratch, s.state); len(a)+len(b) > 0 {
		t.Fatalf("seed %d, change %d: planned from scratch, but not step by step: %v; the other way round: %v; the objects:\n%v", *modelSeed, step, a, b, w)
	}
	var found []proxy.Difference
	if err := s.compare(context.WithoutCancel(t.Context()), scratch, func(d proxy.Difference) { found = append(found, d) }); err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Fatalf("seed %d, change %d: the kernel is not as a plan from scratch: %v; the objects:\n%v", *modelSeed, step, found, w)
	}
}

// changeNode moves the node to another zone, gives it other NodePort addresses, or changes a setting.
func changeNode(w *world.World, l *lab.Lab, c *nodeConfig) {
	addrs := l.Node.Addrs(c.Family)
	switch w.IntN(4) {
	case 0:
		c.Zone = world.Pick(w, world.Zone, "", "another")
	case 1:
		c.NodePortAddrs = addrs[:w.IntN(len(addrs)+1)]
	case 2:
		c.MasqueradeAll = !c.MasqueradeAll
	case 3:
		c.ServiceCIDRs = world.Pick(w, nil, []netip.Prefix{lab.ServiceCIDRs[c.Family]})
	}
}

// changesOf is a change of the world as a source tells it.
func changesOf(c world.Change) (changes []change) {
	for _, o := range c {
		one := change{Kind: source.EndpointSlice, Namespace: "default", Name: o.GetName(), Object: o.Object}
		if _, ok := o.Object.(*corev1.Service); ok {
			one.Kind = source.Service
		}
		o.SetNamespace(one.Namespace)
		if o.Gone {
			one.Object = nil
		}
		changes = append(changes, one)
	}
	return changes
}
