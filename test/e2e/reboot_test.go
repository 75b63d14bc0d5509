package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/cluster"
	"sluice/test/lab"
	"sluice/test/rig"
)

// testReboot starts the agent on a node without rules and without a server. When the server comes back, things
// have changed.
func testReboot(e *env) {
	web, old := e.service("web", "vip2", nodePort(30080)), e.service("old", "vip4")
	e.apply(web, old)
	e.apply(e.slices("web", "pod2", "far1")...)
	e.apply(e.slices("old", "pod1")...)
	e.Run()
	e.awaitCached()
	question := []string{"explain", "web:t", "--from", "192.0.2.77"}
	online, errs, code := e.Command(question...)
	if code != 0 || errs != "" {
		e.T.Errorf("explain: code %d, %s", code, errs)
	}
	e.reboot()
	// Without an agent, a server and rules, the cache is explained all the same, and not touched.
	cache, err := os.ReadFile(filepath.Join(e.Dir, "objects.db"))
	e.must(err)
	offline, errs, code := e.Command(append(question, "--hostname-override", "node", "--cluster-cidr", fmt.Sprintf("%v,%v", lab.ClusterCIDRs[proxy.IPv4], lab.ClusterCIDRs[proxy.IPv6]))...)
	if code != 0 || offline != online || !strings.Contains(errs, "no agent is running: answered from the cache, ") {
		e.T.Errorf("explain from the cache: code %d, %s\n%s\nwith the agent:\n%s", code, errs, offline, online)
	}
	if after, err := os.ReadFile(filepath.Join(e.Dir, "objects.db")); err != nil || !bytes.Equal(after, cache) {
		e.T.Errorf("explain changed the cache: %v", err)
	}
	dryRun := func() string {
		out, errs, code := e.Command(append([]string{"agent", "--dry-run", "--kubeconfig", e.Kubeconfig, "--hostname-override", "node"}, e.Args...)...)
		if code != 1 || errs != "" { // there is a kernel parameter that no namespace can set
			e.T.Errorf("dry run: code %d, %s%s", code, out, errs)
		}
		return out
	}
	if out := dryRun(); !strings.Contains(out, "source     the cache, ") || !strings.Contains(out, "2 differences") {
		e.T.Errorf("dry run without a server: %s", out)
	}
	took := e.startServing()
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080", "far1:8080")
	e.Reach(0, "outside tcp node:30080", "pod2:8080", "far1:8080")
	e.Reach(0, "node udp vip4:80", "pod1:8080")
	e.T.Logf("rules from the cache %v after the start", took.Round(time.Millisecond))
	if s, err := e.Status(); err != nil || s.Cache.Age <= 0 || s.Services < 2 {
		e.T.Errorf("the status does not tell the age of the cache: %+v, %v", s, err)
	}

	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80", "outside udp node:30080")
	before := e.Counters("vip2")
	e.delete(old)
	e.delete(e.slices("old")...)
	e.apply(e.service("new", "vip3"))
	e.apply(e.slices("new", "pod3")...)
	e.join()
	e.Await(inStep, "all objects are known", rig.Settled)
	if out := dryRun(); !strings.Contains(out, "source     API server ") || !strings.Contains(out, "the kernel has all that it should have") {
		e.T.Errorf("dry run beside the agent: %s", out)
	}
	e.Reach(0, "pod1 tcp vip3:80", "pod3:8080")
	e.Reach(0, "pod1 tcp vip4:80", "silence|unreachable")
	rig.EndUndisturbed(e.T, clients, "pod2:8080", "far1:8080")
	e.countedOn(before, "vip2")
	if s, err := e.Status(); err != nil || s.Cache.Serving {
		e.T.Errorf("the agent still says that it serves from the cache: %+v, %v", s, err)
	}
}

// testForeignCache starts agents with a cache that another node or cluster has left: it is not used, and what the server says is.
func testForeignCache(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	e.awaitCached()
	ours := e.cluster.TokenKubeconfig(cluster.ProxyToken)
	foreign, err := cluster.NewAuthority()
	e.must(err)
	base64Of := base64.StdEncoding.EncodeToString
	e.writeKubeconfig(strings.ReplaceAll(ours, base64Of(e.cluster.CA.PEM), base64Of(foreign.PEM)))
	e.reboot()
	e.Start()
	e.AwaitLog(rig.Patience, "the cache is not used", "certificate authority")
	e.Reach(0, "pod1 tcp vip2:80", "unreachable|silence")
	e.End(9)

	// While the authority is rotated both are trusted, and it is the same cluster.
	e.writeKubeconfig(strings.ReplaceAll(ours, base64Of(e.cluster.CA.PEM), base64Of(slices.Concat(foreign.PEM, e.cluster.CA.PEM))))
	e.startServing()
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	e.Stop()
	e.OnNode("nft", "delete", "table", "ip", "sluice")
	e.OnNode("nft", "delete", "table", "ip6", "sluice")

	e.writeKubeconfig(ours)
	e.Args = append(e.Args, "--hostname-override", "another")
	e.join()
	e.must(e.link.Down(e.T.Context()))
	e.Start()
	e.AwaitLog(rig.Patience, "the cache is not used", "node name")
	e.Reach(0, "pod1 tcp vip2:80", "unreachable|silence")
	e.must(e.link.Up(e.T.Context()))
	e.Await(inStep, "all objects are known", rig.Settled)
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
}

// The size of testLargeCache, which docs name.
const largeServices, largeEndpoints = 1000, 10

// testLargeCache measures the start from a large cache.
func testLargeCache(e *env) {
	web := e.service("web", "vip2")
	e.apply(web)
	e.apply(e.slices("web", "pod2")...)
	var all []cluster.Object
	for i := range largeServices {
		name := fmt.Sprint("large-", i)
		ip := fmt.Sprintf("10.96.%d.%d", 100+i/250, 1+i%250)
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}}}
		for n := range largeEndpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", 10+(i*largeEndpoints+n)/250, 1+(i*largeEndpoints+n)%250)}, NodeName: new("node2")})
		}
		all = append(all, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}, slice)
	}
	e.each(all, func(obj cluster.Object) error { return e.cluster.Create(e.T.Context(), obj) })
	e.Run()
	complete := func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Services >= largeServices+1 }
	e.Await(2*rig.Patience, "all Services", complete)
	e.awaitCached()
	e.reboot()
	took := e.startServing()
	e.ReachIn(proxy.IPv4, 0, "pod1 tcp vip2:80", "pod2:8080")
	s, err := e.Status()
	e.must(err)
	if f := s.Families[0]; f.Family != proxy.IPv4 || f.Services < largeServices+1 || f.Endpoints < largeServices*largeEndpoints {
		e.T.Errorf("from the cache: %+v", f)
	}
	e.T.Logf("%d Services of %d endpoints: rules complete %v after exec, anonymous memory %.1f MB", largeServices, largeEndpoints,
		took.Round(time.Millisecond), float64(e.Memory("RssAnon"))/1e6)
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	e.join()
	e.Await(inStep, "all objects are known", complete)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
	e.each(all, func(obj cluster.Object) error { return e.cluster.Delete(e.T.Context(), obj) })
	e.Await(inStep, "all objects gone", func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Services < 10 })
}

// each calls fn for all objects, some at a time.
func (e *env) each(objs []cluster.Object, fn func(cluster.Object) error) {
	e.T.Helper()
	var group errgroup.Group
	group.SetLimit(4)
	for _, obj := range objs {
		group.Go(func() error { return fn(obj) })
	}
	e.must(group.Wait())
}
