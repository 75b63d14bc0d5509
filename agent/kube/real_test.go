package kube

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// control is a real control plane on loopback: etcd and kube-apiserver.
type control struct {
	*rig
	dir        string
	apiserver  string // the binary
	etcdClient string // its address
	etcdPeer   string
	running    map[string]*exec.Cmd
	admin      *http.Client
}

func newControl(t *testing.T) *control {
	t.Helper()
	out, err := exec.Command("../../test/peers/build", "--dir").Output()
	if err != nil {
		t.Skipf("test/peers/build --dir: %v", err)
	}
	apiserver := filepath.Join(strings.TrimSpace(string(out)), "kube-apiserver")
	if _, err := os.Stat(apiserver); err != nil {
		t.Skipf("%v: test/peers/build makes it", err)
	}
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skipf("%v: Debian's package is etcd-server", err)
	}
	c := &control{
		rig: &rig{T: t, ca: newAuthority(t), addr: freeAddr(t), sink: newSink(), logs: &logs{}},
		dir: t.TempDir(), apiserver: apiserver, running: map[string]*exec.Cmd{},
		etcdClient: freeAddr(t), etcdPeer: freeAddr(t),
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeproxy.kubeconfig")
	t.Cleanup(func() { c.stop("kube-apiserver"); c.stop("etcd") })

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cert := c.ca.valid(t, "kube-apiserver")
	for name, text := range map[string]string{
		"tokens.csv": "admin-token,admin,admin,system:masters\n", "ca.crt": string(c.ca.pem),
		"tls.crt": string(cert.cert), "tls.key": string(cert.key),
		"sa.key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	} {
		c.write(filepath.Join(c.dir, name), text)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.cert)
	c.admin = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	return c
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (c *control) startEtcd() {
	c.Helper()
	c.run("etcd", "etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://"+c.etcdClient, "--advertise-client-urls", "http://"+c.etcdClient,
		"--listen-peer-urls", "http://"+c.etcdPeer, "--initial-advertise-peer-urls", "http://"+c.etcdPeer,
		"--initial-cluster", "default=http://"+c.etcdPeer)
}

// startAPIServer starts it and waits until it is ready.
func (c *control) startAPIServer() {
	c.Helper()
	in := func(name string) string { return filepath.Join(c.dir, name) }
	_, port, _ := net.SplitHostPort(c.addr)
	c.run("kube-apiserver", c.apiserver, "--etcd-servers", "http://"+c.etcdClient,
		"--bind-address", "127.0.0.1", "--secure-port", port, "--advertise-address", "192.0.2.1",
		"--tls-cert-file", in("tls.crt"), "--tls-private-key-file", in("tls.key"), "--client-ca-file", in("ca.crt"),
		"--token-auth-file", in("tokens.csv"), "--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", in("sa.key"),
		"--service-account-signing-key-file", in("sa.key"), "--service-cluster-ip-range", "10.96.0.0/16", "--cert-dir", c.dir)
	c.eventuallyIn(2*time.Minute, "kube-apiserver is ready", func() bool {
		code, _, err := c.try(http.MethodGet, "/readyz", nil)
		return err == nil && code == http.StatusOK
	})
}

func (c *control) run(name, command string, args ...string) {
	c.Helper()
	cmd := exec.Command(command, args...)
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.running[name] = cmd
}

func (c *control) stop(name string) {
	if cmd := c.running[name]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(c.running, name)
	}
}

func (c *control) try(method, path string, obj any) (int, string, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequest(method, "https://"+c.addr+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.admin.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// do sends a request that must succeed.
func (c *control) do(method, path string, obj any) string {
	c.Helper()
	code, text, err := c.try(method, path, obj)
	if err != nil || code >= 300 {
		c.Fatalf("%s %s: %d %s %v", method, path, code, text, err)
	}
	return text
}

func (c *control) create(objs ...runtime.Object) {
	c.Helper()
	for _, obj := range objs {
		path := pathOf(obj)
		gvks, _, err := newScheme().ObjectKinds(obj)
		if err != nil {
			c.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(gvks[0])
		if m := obj.(metav1.Object); m.GetNamespace() != "" {
			at := strings.LastIndex(path, "/")
			path = path[:at] + "/namespaces/" + m.GetNamespace() + path[at:]
		}
		c.do(http.MethodPost, path, obj)
	}
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
	c.startEtcd()
	c.startAPIServer()
	c.create(service("web", "10.96.0.10", nil), slice("web-1", ofWeb), node("pi"), node("other"),
		service("headless", "None", nil), service("other", "10.96.0.11", map[string]string{"service.kubernetes.io/service-proxy-name": "other"}),
		slice("headless-1", map[string]string{"kubernetes.io/service-name": "headless", "service.kubernetes.io/headless": ""}))
	c.write(c.kubeconfig, c.config(c.ca.valid(t, "system:kube-proxy")))
	c.start()
	c.eventuallyIn(time.Minute, "synced", c.sink.isSynced)
	c.knows("Service default/web", "EndpointSlice default/web-1", "Node /pi")

	t.Run("changes", func(t *testing.T) {
		c.create(service("db", "10.96.0.12", nil))
		c.do(http.MethodDelete, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1", nil)
		c.knows("Service default/web", "Service default/db", "Node /pi")
	})
	t.Run("lists are streamed", func(t *testing.T) {
		out, _ := exec.Command("etcd", "--version").Output()
		if strings.Contains(string(out), "etcd Version: 3.4.") {
			t.Skip("kube-apiserver does not stream lists with etcd 3.4 of Debian; 3.6 is enough")
		}
		metrics := c.do(http.MethodGet, "/metrics", nil)
		for _, resource := range []string{"services", "endpointslices", "nodes", "servicecidrs"} {
			want := fmt.Sprintf(`resource="%s"`, resource)
			if !slices.ContainsFunc(strings.Split(metrics, "\n"), func(line string) bool {
				return strings.HasPrefix(line, "apiserver_watch_list_duration_seconds_count") && strings.Contains(line, want)
			}) {
				t.Errorf("no list of %s was streamed", resource)
			}
		}
	})
	t.Run("the event Starting", func(t *testing.T) {
		c.eventually("it is there", func() bool {
			text := c.do(http.MethodGet, "/api/v1/namespaces/default/events", nil)
			return strings.Contains(text, `"reason":"Starting"`) && strings.Contains(text, `"kind":"Node","name":"pi"`)
		})
	})
	t.Run("a restart of the server", func(t *testing.T) {
		c.stop("kube-apiserver")
		c.eventually("the problem", func() bool { return strings.Contains(c.sink.reasons(), "cannot be reached") })
		c.startAPIServer()
		c.create(slice("db-1", map[string]string{"kubernetes.io/service-name": "db"}))
		c.knows("Service default/web", "Service default/db", "EndpointSlice default/db-1", "Node /pi")
		c.eventually("the problem's end", func() bool { return c.sink.reasons() == "" })
	})
	t.Run("an older etcd", func(t *testing.T) {
		c.stop("kube-apiserver")
		c.stop("etcd")
		backup := filepath.Join(c.dir, "backup")
		if err := os.CopyFS(backup, os.DirFS(filepath.Join(c.dir, "etcd"))); err != nil {
			t.Fatal(err)
		}
		c.startEtcd()
		c.startAPIServer()
		for i := range 100 { // so that the server cannot come as far again by itself
			c.create(service(fmt.Sprint("later-", i), "", nil))
		}
		c.eventuallyIn(time.Minute, "the last of them", func() bool {
			return slices.ContainsFunc(c.sink.names(), func(n string) bool { return strings.HasPrefix(n, "Service default/later-99@") })
		})
		c.stop("kube-apiserver")
		c.stop("etcd")
		if err := os.Rename(filepath.Join(c.dir, "etcd"), filepath.Join(c.dir, "gone")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(backup, filepath.Join(c.dir, "etcd")); err != nil {
			t.Fatal(err)
		}
		c.startEtcd()
		c.startAPIServer()
		c.create(service("new", "10.96.0.13", nil))
		c.knows("Service default/web", "Service default/db", "Service default/new", "EndpointSlice default/db-1", "Node /pi")
	})
	if t.Failed() {
		text, _ := os.ReadFile(filepath.Join(c.dir, "kube-apiserver.log"))
		t.Logf("the end of kube-apiserver's log:\n%s", text[max(0, len(text)-4000):])
	}
}
