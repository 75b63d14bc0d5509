package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
	"sluice/test/cluster"
	"sluice/test/lab"
	"sluice/test/rig"
)

// testAnotherCluster gives the node to another cluster of the same certificate authority, as when a server was installed
// anew. Only default/kubernetes, which the server tells, shows it.
func testAnotherCluster(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	e.awaitCached()
	e.Stop()
	e.must(e.link.Down(e.T.Context()))

	ours := e.cluster.ServiceCIDRs
	e.restartEtcd(func() error { return e.cluster.SaveEtcd("ours") })
	e.T.Cleanup(func() {
		ctx := context.WithoutCancel(e.T.Context())
		e.cluster.ServiceCIDRs = ours
		if err := errors.Join(e.cluster.KillServer(), e.cluster.StopEtcd(), e.cluster.RestoreEtcd("ours"), e.cluster.EnsureRunning(ctx)); err != nil {
			e.T.Error(err)
		}
	})
	e.restartEtcd(func() error {
		e.cluster.ServiceCIDRs = "10.97.0.0/24,fd00:97::/112"
		return e.cluster.ForgetEtcd()
	})
	e.must(e.cluster.Create(e.T.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "lab"}, Spec: networkingv1.ServiceCIDRSpec{
			CIDRs: []string{lab.ServiceCIDRs[proxy.IPv4].String(), lab.ServiceCIDRs[proxy.IPv6].String()}}}))
	e.Eventually(rig.Patience, "addresses of the lab's range can be had", func() bool {
		err := e.cluster.Create(e.T.Context(), e.service("theirs", "vip3"))
		if answer := (*cluster.StatusError)(nil); err != nil && !errors.As(err, &answer) {
			e.T.Fatal(err)
		}
		return err == nil
	})
	e.must(e.cluster.Create(e.T.Context(), e.slices("theirs", "pod3")...))

	e.startServing() // nothing tells that it is another one
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")
	e.must(e.link.Up(e.T.Context()))
	e.AwaitLog(inStep, "another cluster", "ClusterIP of default/kubernetes", "was=10.96.0.1", "is=10.97.0.1")
	e.Await(inStep, "all objects are known", rig.Settled)
	e.Reach(0, "pod1 tcp vip3:80", "pod3:8080")
	e.Reach(0, "pod1 tcp vip2:80", "unreachable|silence")

	// What is in the cache now is of this cluster.
	e.awaitCached()
	e.Stop()
	e.must(e.link.Down(e.T.Context()))
	e.startServing()
	e.Reach(0, "pod1 tcp vip3:80", "pod3:8080")
	e.Reach(0, "pod1 tcp vip2:80", "unreachable|silence")
	if n := e.Logged("another cluster"); n != 1 {
		e.T.Errorf("the other cluster was logged %d times", n)
	}
}

// outage is how long the server is away in testLongOutage.
const outage = time.Minute

// testLongOutage looks at what the agent says while the server is away: how old its knowledge is, and little else.
func testLongOutage(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	time.Sleep(time.Second) // a watch that ends sooner counts as none
	warnings := e.Logged("level=WARN")
	e.must(e.cluster.KillServer())
	gone := time.Now()
	e.AwaitProblem(rig.Patience, "cannot be reached")
	lines := strings.Count(e.Log.String(), "\n")
	for time.Since(gone) < outage {
		time.Sleep(outage / 6)
		least := time.Since(gone).Seconds() // the knowledge is of before that
		for what, got := range map[string]float64{
			"/healthz":               e.healthzAge(),
			"the metric of Services": rig.Metric(e.T, e.Lab.Node, `sluice_cache_age_seconds{kind="Service"}`),
			"the metric of slices":   rig.Metric(e.T, e.Lab.Node, `sluice_cache_age_seconds{kind="EndpointSlice"}`),
		} {
			if got < least || got > least+time.Minute.Seconds()+rig.Patience.Seconds() { // a bookmark comes each minute
				e.T.Errorf("%s says that the knowledge is %.1f s old, %.1f s after the server went", what, got, least)
			}
		}
	}
	if strings.Count(e.Log.String(), "\n") > lines {
		e.T.Errorf("lines were logged in the middle of an outage:\n%s", lastLines(e.Log.String(), lines))
	}
	if n := e.Logged("level=WARN") - warnings; n != 1 {
		e.T.Errorf("%d warnings, want that the server is gone", n)
	}
	e.Reach(0, "pod1 tcp vip2:80", "pod2:8080")

	e.must(e.cluster.StartServer(e.T.Context()))
	e.Eventually(soonInStep, "the knowledge is new", func() bool { return e.healthzAge() < 2*soonInStep.Seconds() })
	e.AwaitNoProblem(rig.Patience)
	if all := strings.Count(e.Log.String(), "\n"); all > lines+1 {
		e.T.Errorf("more than the end of the outage was logged:\n%s", lastLines(e.Log.String(), lines))
	}
}

// lastLines is a text without its first n lines.
func lastLines(text string, n int) string {
	return strings.Join(strings.SplitAfter(text, "\n")[n:], "")
}

// healthzAge is how old the agent says at /healthz that its knowledge is, in seconds.
func (e *env) healthzAge() float64 {
	e.T.Helper()
	code, body, _ := rig.Get(e.T, e.Lab.Node, "http://127.0.0.1:10256/healthz")
	var answer struct{ KnowledgeAgeSeconds *float64 }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK || answer.KnowledgeAgeSeconds == nil {
		e.T.Fatalf("/healthz: %d: %s (%v)", code, body, err)
	}
	return *answer.KnowledgeAgeSeconds
}
