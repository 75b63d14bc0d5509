package e2e

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/status"
	"sluice/test/cluster"
	"sluice/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// inStep is how long a change at the API server may take after the way to it was mended: the agent may just
// have begun a pause between two attempts, or TCP one between two packets.
const inStep = 60 * time.Second

// soonInStep is how long that may take where no connection was left open, as after the server was killed: a pause of
// up to 5 s, or as long for an attempt to connect, and what requests take on a busy machine. A connection that nobody was told the
// end of is missed after 45 s.
const soonInStep = 20 * time.Second

// TestEndToEnd shares one control plane, as it takes seconds to start: each test has a lab of its own, and
// deletes what it made.
func TestEndToEnd(t *testing.T) {
	c := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(*env)
	}{
		{"services", testServices},
		{"rights and events", testRights},
		{"events of Services", testServiceEvents},
		{"server", testServer},
		{"link", testLink},
		{"restart without server", testRestart},
		{"reboot", testReboot},
		{"foreign cache", testForeignCache},
		{"another cluster", testAnotherCluster},
		{"long outage", testLongOutage},
		{"token", testToken},
		{"certificate", testCertificate},
		{"older etcd", testOlderEtcd},
		{"large cache", testLargeCache},
		{"takeover", testTakeover},
		{"churn", testChurn},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newEnv(t, c)) })
	}
}

// newCluster starts a control plane with a node.
func newCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(t.Context(), cluster.Options{})
	if errors.Is(err, cluster.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of kube-apiserver's log:\n%s", c.ServerLog(4000))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{corev1.LabelTopologyZone: "here"}},
		Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return c
}

// env is a control plane and a node with an agent.
type env struct {
	*rig.Rig
	cluster *cluster.Cluster
	link    *cluster.Link
	made    []cluster.Object
}

func newEnv(t *testing.T, c *cluster.Cluster) *env {
	t.Helper()
	e := &env{Rig: rig.New(t), cluster: c}
	e.Kubeconfig = filepath.Join(e.Dir, "kubeproxy.kubeconfig")
	e.writeKubeconfig(c.TokenKubeconfig(cluster.ProxyToken))
	e.join()
	t.Cleanup(e.cleanUp)
	return e
}

// cleanUp brings the control plane back to where the next test begins.
func (e *env) cleanUp() {
	ctx := context.WithoutCancel(e.T.Context())
	if err := e.cluster.EnsureRunning(ctx); err != nil {
		e.T.Error(err)
		return
	}
	for _, obj := range e.made {
		var answer *cluster.StatusError
		if err := e.cluster.Delete(ctx, obj); err != nil && !(errors.As(err, &answer) && answer.Code == http.StatusNotFound) {
			e.T.Error("delete what the test made:", err)
		}
	}
}

func (e *env) must(err error) {
	e.T.Helper()
	if err != nil {
		e.T.Fatal(err)
	}
}

// join links the node to the control plane.
func (e *env) join() {
	e.T.Helper()
	var err error
	e.link, err = e.cluster.Join(e.T.Context(), e.Lab.Node.Namespace)
	e.must(err)
}

// apply writes objects at the API server.
func (e *env) apply(objs ...cluster.Object) {
	e.T.Helper()
	e.made = append(e.made, objs...)
	e.must(e.cluster.Apply(e.T.Context(), objs...))
}

func (e *env) delete(objs ...cluster.Object) {
	e.T.Helper()
	e.must(e.cluster.Delete(e.T.Context(), objs...))
}

// restartServer kills kube-apiserver and starts it again.
func (e *env) restartServer() {
	e.T.Helper()
	e.must(e.cluster.KillServer())
	e.must(e.cluster.StartServer(e.T.Context()))
}

// restartEtcd does something with etcd's data while neither server runs.
func (e *env) restartEtcd(act func() error) {
	e.T.Helper()
	e.must(e.cluster.KillServer())
	e.must(e.cluster.StopEtcd())
	e.must(act())
	e.must(e.cluster.StartEtcd())
	e.must(e.cluster.StartServer(e.T.Context()))
}

// awaitCached waits until the cache has all that the agent knows.
func (e *env) awaitCached() {
	e.T.Helper()
	e.Await(rig.Patience, "everything in the cache", func(s status.Status) bool { return s.Synced && s.Cache.Waiting == 0 && s.Cache.LastError == "" })
}

// reboot gives the node a new network without any rules, and takes it off the control plane. Files stay.
func (e *env) reboot() {
	e.T.Helper()
	e.Stop()
	e.must(e.link.Down(e.T.Context()))
	fresh := rig.New(e.T, e.Args[2:]...)
	fresh.Dir, fresh.Kubeconfig = e.Dir, e.Kubeconfig
	e.Rig = fresh
}

// startServing starts the agent and waits until it serves from the cache alone.
func (e *env) startServing() (took time.Duration) {
	e.T.Helper()
	begun := time.Now()
	e.Start()
	s := e.Await(rig.Patience, "rules from the cache", func(s status.Status) bool {
		for _, f := range s.Families {
			if f.Pending || f.LastSync.IsZero() {
				return false
			}
		}
		return s.Cache.Serving && len(s.Families) == 2
	})
	var last time.Time
	for _, f := range s.Families {
		if f.LastSync.After(last) {
			last = f.LastSync
		}
	}
	if s.Synced {
		e.T.Error("the agent says that it is in step with a server that it cannot reach")
	}
	return last.Sub(begun)
}
