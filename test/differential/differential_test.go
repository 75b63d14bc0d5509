package differential

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
	"sluice/test/cluster"
	"sluice/test/kubeproxy"
	"sluice/test/lab"
	"sluice/test/rig"
	"sluice/test/world"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the first sequence of changes; the next one has the next number")
	steps  = flag.Int("steps", 20, "how many sets of objects are compared")
	limit  = flag.Duration("for", time.Hour, "no set is begun after this time")
	amount = flag.Int("probes", 24, "how many probes, of all that are possible, a set is compared by")
)

// sequence is how many changes follow each other before all begins anew with no objects.
const sequence = 10

func TestMain(m *testing.M) { rig.Main(m) }

type object = cluster.Object

// pair is both sides before one API server.
type pair struct {
	t       *testing.T
	cluster *cluster.Cluster
	ours    *side
	theirs  *side
	marks   int
}

func TestSameAnswers(t *testing.T) {
	p := newPair(t)
	names := map[proxy.Family]map[string]netip.Addr{}
	for _, f := range proxy.Families {
		names[f] = p.ours.Names(f)
	}
	begun, differences, compared := time.Now(), 0, 0
	for n := 0; n < *steps && time.Since(begun) < *limit; {
		s := *seed + uint64(n/sequence)
		w := world.New(s, names)
		for step := 0; step < sequence && n < *steps && time.Since(begun) < *limit; step++ {
			p.bring(w.Step())
			probes := chooseProbes(w, names, *amount)
			for _, d := range p.compare(probes) {
				differences++
				t.Errorf("seed %d, step %d: %s", s, step, d)
			}
			if t.Failed() && differences < 40 {
				t.Logf("seed %d, step %d: the objects:\n%s", s, step, w)
			}
			n, compared = n+1, compared+len(probes)
		}
		p.bring(w.End())
		if t.Failed() && differences >= 40 {
			t.Fatal("too many differences")
		}
		if n%100 == 0 {
			t.Logf("%d sets after %v: %d probes, %d differences", n, time.Since(begun).Round(time.Second), compared, differences)
		}
	}
	t.Logf("seeds from %d on: %d probes in %v, %d differences", *seed, compared, time.Since(begun).Round(time.Second), differences)
}

func newPair(t *testing.T) *pair {
	peers, err := cluster.Peers("kube-proxy", "kube-apiserver")
	if errors.Is(err, cluster.ErrMissing) {
		t.Skip(err)
	}
	p := &pair{t: t}
	p.must(err)
	p.cluster, err = cluster.New(t.Context(), cluster.Options{})
	if errors.Is(err, cluster.ErrMissing) {
		t.Skip(err)
	}
	p.must(err)
	t.Cleanup(func() { p.must(p.cluster.Close()) })
	p.ours, p.theirs = p.newSide(rigName), p.newSide(kubeproxy.TableName)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{corev1.LabelTopologyZone: world.Zone}}}
	for _, f := range proxy.Families {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.ours.Node.Addr(f).String()})
	}
	p.must(p.cluster.Create(t.Context(), node))
	p.must(p.cluster.ApplyStatus(t.Context(), node))

	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	p.must(os.WriteFile(kubeconfig, []byte(p.cluster.TokenKubeconfig(cluster.ProxyToken)), 0o600))
	cidrs := fmt.Sprintf("%v,%v", lab.ClusterCIDRs[proxy.IPv4], lab.ClusterCIDRs[proxy.IPv6])
	k, err := kubeproxy.Start(p.theirs.Node.Namespace, filepath.Join(peers, "kube-proxy"), dir, kubeproxy.Config{
		Kubeconfig: kubeconfig, HostnameOverride: "node", ClusterCIDR: cidrs, MinSyncPeriod: "1ms", NodePortAddresses: []string{"primary"}})
	p.must(err)
	t.Cleanup(k.Kill)
	p.theirs.alive = func() {
		select {
		case <-k.Ended:
			t.Fatalf("kube-proxy ended:\n%s", k.Output())
		default:
		}
	}
	agent := rig.NewProcess(t, p.ours.Node.Namespace, "--cluster-cidr", cidrs)
	agent.Kubeconfig = kubeconfig
	agent.Start()
	p.ours.alive = agent.Alive
	p.bring(nil)
	return p
}

// rigName is the agent's table.
const rigName = "sluice"

func (p *pair) newSide(name string) *side {
	p.t.Helper()
	l, err := lab.New(p.t.Context(), lab.Options{})
	p.must(err)
	p.t.Cleanup(func() { p.must(l.Close()) })
	_, err = p.cluster.Join(p.t.Context(), l.Node.Namespace)
	p.must(err)
	return &side{name: name, Lab: l}
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// markNumber is the number of a Service that tells when changes are in force: each change is followed by one of it and of its slices, and
// objects of a kind come in order.
const markNumber = 99

// bring makes a change and waits until both proxies have taken it up.
func (p *pair) bring(c world.Change) {
	p.t.Helper()
	ctx := context.WithoutCancel(p.t.Context())
	for _, o := range c {
		if o.Gone {
			p.must(p.cluster.Delete(ctx, o.Object))
			continue
		}
		p.must(p.cluster.Apply(ctx, o.Object))
		if s, ok := o.Object.(*corev1.Service); ok && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			p.must(p.cluster.ApplyStatus(ctx, s))
		}
	}
	p.marks++
	port := int32(10000 + p.marks)
	mark := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "mark"}}
	mark.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	mark.Spec.Ports = []corev1.ServicePort{{Port: port}}
	var endpoints []object
	for _, f := range proxy.Families {
		mark.Spec.ClusterIPs = append(mark.Spec.ClusterIPs, world.ServiceIP(f, markNumber).String())
		mark.Spec.IPFamilies = append(mark.Spec.IPFamilies, corev1.IPFamily(f.String()))
		endpoints = append(endpoints, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "mark-" + strings.ToLower(f.String()), Labels: map[string]string{discoveryv1.LabelServiceName: "mark"}},
			AddressType: discoveryv1.AddressType(f.String()), Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{p.ours.Pods[0].Addr(f).String()}}}})
	}
	mark.Spec.ClusterIP = mark.Spec.ClusterIPs[0]
	p.must(p.cluster.Apply(ctx, append(endpoints, mark)...))
	p.ours.await(p.t, int(port))
	p.theirs.await(p.t, int(port))
	p.must(errors.Join(p.ours.forget(), p.theirs.forget()))
}

// compare sends the probes in both labs and describes the differences. One that goes away with more patience is none.
func (p *pair) compare(probes []probe) (differences []string) {
	sides := [...]*side{p.ours, p.theirs}
	seen := [len(sides)][]map[string]bool{}
	for i := range sides {
		seen[i] = make([]map[string]bool, len(probes))
	}
	for _, timeout := range []time.Duration{short, long, long} {
		var group sync.WaitGroup
		for i, s := range sides {
			for j := range probes {
				if seen[i][j] == nil {
					seen[i][j] = map[string]bool{}
				}
				delete(seen[i][j], "silence") // asked again, with more patience
			}
			group.Go(func() { s.ask(p.t.Context(), probes, timeout, seen[i]) })
		}
		group.Wait()
		var left []probe
		var leftSeen [len(sides)][]map[string]bool
		differences = nil
		for j := range probes {
			ours, theirs := text(seen[0][j]), text(seen[1][j])
			if ours == theirs {
				continue
			}
			differences = append(differences, fmt.Sprintf("%v:\n\tsluice     %s\n\tkube-proxy %s", &probes[j], ours, theirs))
			left = append(left, probes[j])
			for i := range sides {
				leftSeen[i] = append(leftSeen[i], seen[i][j])
			}
		}
		if probes, seen = left, leftSeen; len(probes) == 0 {
			return nil
		}
	}
	return differences
}
