package dataplane

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"

	"sluice/agent/source"
	"sluice/proxy"
	"sluice/test/lab"
)

// allCases, in the order in which they run.
var allCases = slices.Concat(clusterIPCases, externalCases, masqueradeCases, endpointCases, changeCases, affinityCases)

// testCase is objects and what becomes of packets.
type testCase struct {
	name string
	// except says what the case is not for, and why: a subject, or a subject/layout.
	except map[string]string
	// node changes the default configuration.
	node func(*nodeConfig)
	// objects that exist at the beginning, and the probes then.
	objects string
	probes  string
	// steps follow each other.
	steps []step
	// check is what a table cannot say. It comes last.
	check func(*run)
}

// step is a change and the probes after it.
type step struct {
	// node changes the configuration that the case has so far.
	node func(*nodeConfig)
	// remove names objects that go, like "Service/web EndpointSlice/web-1"; objects are those that come or change.
	remove  string
	objects string
	probes  string
}

// caseTimeout ends a case that hangs. Most take less than a second, but a kube-proxy on a busy machine needs
// many of them to start.
const caseTimeout = 2 * time.Minute

// run is one run of a case.
type run struct {
	t       *testing.T
	ctx     context.Context
	lab     *lab.Lab
	family  proxy.Family
	names   map[string]netip.Addr
	subject subject
	config  nodeConfig
	// present are the objects that exist, with a nil Object each.
	present map[change]bool
}

func (c *testCase) run(t *testing.T, l *lab.Lab, f proxy.Family, s subject) {
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	r := &run{
		t: t, ctx: ctx, lab: l, family: f, names: l.Names(f), subject: s,
		config: defaultConfig(l, f), present: map[change]bool{},
	}
	r.forgetFlows()
	if c.node != nil {
		c.node(&r.config)
	}
	r.must(s.Configure(ctx, r.config))
	defer r.end()
	r.step(step{objects: c.objects, probes: c.probes})
	for _, st := range c.steps {
		r.step(st)
	}
	if c.check != nil {
		c.check(r)
	}
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) step(st step) {
	r.t.Helper()
	if st.node != nil {
		st.node(&r.config)
		r.must(r.subject.Configure(r.ctx, r.config))
	}
	r.change(st.remove, st.objects)
	r.probe(st.probes)
}

// change removes objects and then brings in others, and checks that the kernel has just what it should.
func (r *run) change(remove, objects string) {
	r.t.Helper()
	var changes []change
	for name := range strings.FieldsSeq(remove) {
		kind, name, _ := strings.Cut(name, "/")
		gone := change{Kind: source.Kind(kind), Namespace: "default", Name: name}
		if !r.present[gone] {
			r.t.Fatalf("%s %s is to be removed, and does not exist", kind, name)
		}
		delete(r.present, gone)
		changes = append(changes, gone)
	}
	come, err := parseObjects(objects, r.family, r.names)
	r.must(err)
	for _, c := range come {
		r.present[change{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}] = true
	}
	r.must(r.subject.Set(r.ctx, append(changes, come...)))
	if err := r.subject.Settled(r.ctx); err != nil {
		r.t.Error(err)
	}
}

// end removes all objects, in no order, and checks that nothing is left of them.
func (r *run) end() {
	var gone []change
	for c := range r.present {
		gone = append(gone, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the case may have used up its time
	defer cancel()
	if err := r.subject.Set(ctx, gone); err != nil {
		r.t.Error(err)
	}
	if err := r.subject.Settled(ctx); err != nil {
		r.t.Error(err)
	}
	left, err := r.subject.Leftovers(ctx)
	if err != nil {
		r.t.Error(err)
	}
	if len(left) > 0 {
		r.t.Errorf("after all objects are gone the kernel still has:\n%s", strings.Join(left, "\n"))
	}
}

// forgetFlows empties node's connection tracking table, so that no flow of the case before matters.
func (r *run) forgetFlows() {
	conn, err := conntrack.Dial(&netlink.Config{NetNS: r.lab.Node.FD()})
	r.must(err)
	defer conn.Close()
	r.must(conn.Flush())
}

// command runs a command on node.
func (r *run) command(name string, args ...string) string {
	r.t.Helper()
	out, err := r.lab.Node.Run(context.WithoutCancel(r.ctx), "", name, args...)
	r.must(err)
	return out
}
