package kube

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/cluster"
	"sluice/test/testlog"
)

// control is a real control plane on loopback, and a Source that follows it.
type control struct {
	*rig
	*cluster.Cluster
}

func newControl(t *testing.T) *control {
	t.Helper()
	servers, err := cluster.New(t.Context(), cluster.Options{Loopback: true})
	if errors.Is(err, cluster.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	return &control{
		rig:     &rig{T: t, kubeconfig: filepath.Join(t.TempDir(), "kubeproxy.kubeconfig"), sink: newSink(), logs: &testlog.Records{}},
		Cluster: servers,
	}
}

func (c *control) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *control) create(objs ...cluster.Object) {
	c.Helper()
	c.must(c.Create(c.T.Context(), objs...))
}

func (c *control) get(path string) string {
	c.Helper()
	text, err := c.Do(c.T.Context(), http.MethodGet, path, nil)
	c.must(err)
	return text
}

// knows waits until the sink has exactly these objects beside the server's own.
func (c *control) knows(want ...string) {
	c.Helper()
	want = append(want, "Service default/kubernetes", "ServiceCIDR /kubernetes")
	slices.Sort(want)
	got := func() []string {
		names := c.sink.names()
		for i, n := range names {
			names[i], _, _ = strings.Cut(n, "@")
		}
		return slices.DeleteFunc(names, func(n string) bool { return n == "EndpointSlice default/kubernetes" })
	}
	c.eventuallyIn(time.Minute, fmt.Sprint(want), func() bool { return slices.Equal(got(), want) })
}

// TestKubeAPIServer follows a real server, with the credentials and rights of a node's proxy.
func TestKubeAPIServer(t *testing.T) {
	c := newControl(t)
	c.create(service("web", "10.96.0.10", nil), slice("web-1", ofWeb), node("pi"), node("other"),
		service("headless", "None", nil), service("other", "10.96.0.11", map[string]string{"service.kubernetes.io/service-proxy-name": "other"}),
		slice("headless-1", map[string]string{"kubernetes.io/service-name": "headless", "service.kubernetes.io/headless": ""}))
	cert, err := c.CA.Valid(cluster.ProxyUser)
	c.must(err)
	c.write(c.kubeconfig, c.CertKubeconfig(cert))
	c.start()
	c.eventuallyIn(time.Minute, "synced", c.sink.isSynced)
	c.knows("Service default/web", "EndpointSlice default/web-1", "Node /pi")

	t.Run("changes", func(t *testing.T) {
		c.create(service("db", "10.96.0.12", nil))
		c.must(c.Delete(t.Context(), slice("web-1", nil)))
		c.knows("Service default/web", "Service default/db", "Node /pi")
	})
	t.Run("the event Starting", func(t *testing.T) {
		c.eventually("it is there", func() bool {
			text := c.get("/api/v1/namespaces/default/events")
			return strings.Contains(text, `"reason":"Starting"`) && strings.Contains(text, `"kind":"Node","name":"pi"`)
		})
	})
	t.Run("a restart of the server", func(t *testing.T) {
		c.must(c.KillServer())
		c.eventually("the problem", func() bool { return strings.Contains(c.sink.reasons(), "cannot be reached") })
		c.must(c.StartServer(t.Context()))
		c.create(slice("db-1", map[string]string{"kubernetes.io/service-name": "db"}))
		c.knows("Service default/web", "Service default/db", "EndpointSlice default/db-1", "Node /pi")
		c.eventually("the problem's end", func() bool { return c.sink.reasons() == "" })
	})
	t.Run("an older etcd", func(t *testing.T) {
		c.must(c.KillServer())
		c.must(c.KillEtcd())
		c.must(c.SaveEtcd("older"))
		c.must(c.StartEtcd())
		c.must(c.StartServer(t.Context()))
		for i := range 100 { // so that the server cannot come as far again by itself
			c.create(service(fmt.Sprint("later-", i), "", nil))
		}
		c.eventuallyIn(time.Minute, "the last of them", func() bool {
			return slices.ContainsFunc(c.sink.names(), func(n string) bool { return strings.HasPrefix(n, "Service default/later-99@") })
		})
		c.must(c.KillServer())
		c.must(c.KillEtcd())
		c.must(c.RestoreEtcd("older"))
		c.must(c.StartEtcd())
		c.must(c.StartServer(t.Context()))
		c.create(service("new", "10.96.0.13", nil))
		c.knows("Service default/web", "Service default/db", "Service default/new", "EndpointSlice default/db-1", "Node /pi")
	})
	if t.Failed() {
		t.Logf("the end of kube-apiserver's log:\n%s", c.ServerLog(4000))
	}
}
