package kube

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/source"
	"sluice/test/cluster"
)

// The kubeconfig is written late and in pieces.
func TestKubeconfigComesLate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.start()
	r.eventually("waiting", func() bool { return strings.Contains(r.sink.reasons(), "waiting for it to be written") })
	if got := r.sink.reasons(); strings.Contains(got, "set --kubeconfig") {
		t.Errorf("who named a kubeconfig is told to name one: %s", got)
	}
	text := r.config(r.ca.valid(t, "system:kube-proxy"))
	for _, n := range []int{0, len(text) / 3, len(text) - 30} {
		r.write(r.kubeconfig, text[:n])
		time.Sleep(300 * time.Millisecond)
	}
	r.write(r.kubeconfig, text)
	r.has(someNames...)
	r.eventually("no problem", func() bool { return r.sink.reasons() == "" })
	if lines := r.logs.Matching("WARN"); len(lines) != 1 || !strings.Contains(lines[0], "waiting for it to be written") {
		t.Errorf("log: %q, want one line about waiting", lines)
	}
}

// A kubeconfig is rewritten in place for another server.
func TestKubeconfigChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.startSynced()
	other := newRig(t)
	other.api.put(service("elsewhere", "10.43.0.20", nil), node("pi"))
	text := other.config(other.ca.valid(t, "system:kube-proxy"))

	r.write(r.kubeconfig, text[:len(text)/2])
	r.eventually("the problem of the half kubeconfig", func() bool { return strings.Contains(r.sink.reasons(), r.kubeconfig) })
	r.api.put(service("db", "10.43.0.12", nil))
	r.has(append(someNames, "Service default/db@105")...) // the old one is still followed

	if err := os.Remove(r.kubeconfig); err != nil {
		t.Fatal(err)
	}
	r.eventually("the problem of the missing kubeconfig", func() bool { return strings.Contains(r.sink.reasons(), "it is gone") })

	r.write(r.kubeconfig, text)
	r.has("Service default/elsewhere@101", "Node /pi@102")
	r.eventually("no problem", func() bool { return r.sink.reasons() == "" })
	if id, ok := r.source.Identity(); !ok || !cmp.Equal(id, mustIdentify(t, other.ca.PEM)) {
		t.Errorf("identity %v is not the other cluster's", id)
	}
	if got, want := r.source.String(), "API server https://"+other.addr; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	// The same text again is no change.
	before := len(other.api.requestsNow())
	r.write(r.kubeconfig, text)
	time.Sleep(time.Second)
	if n := len(other.api.requestsNow()); n != before {
		t.Errorf("%d requests after the same kubeconfig was written again", n-before)
	}
}

// byFiles is a kubeconfig as k3s writes it: it names files.
func (r *rig) byFiles(t *testing.T, client cluster.Pair, user string) {
	t.Helper()
	dir := filepath.Dir(r.kubeconfig)
	r.write(filepath.Join(dir, "server-ca.crt"), string(r.ca.PEM))
	r.write(filepath.Join(dir, "client.crt"), string(client.Cert))
	r.write(filepath.Join(dir, "client.Key"), string(client.Key))
	r.write(r.kubeconfig, `apiVersion: v1
clusters:
- cluster:
    server: https://`+r.addr+`
    certificate-authority: server-ca.crt
  name: local
contexts:
- context: {cluster: local, namespace: default, user: user}
  name: Default
current-context: Default
kind: Config
users:
- name: user
  user: {`+user+`}
`)
}

const certificateFiles = "client-certificate: client.crt, client-key: client.Key"

// An expired client certificate is named, and a new one is taken up.
func TestCertificateExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.byFiles(t, r.ca.issue(t, "system:kube-proxy", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)), certificateFiles)
	r.start()
	r.eventually("the problem", func() bool {
		return strings.Contains(r.sink.reasons(), "the client certificate of system:kube-proxy expired at")
	})
	fresh := r.ca.valid(t, "system:kube-proxy")
	dir := filepath.Dir(r.kubeconfig)
	r.write(filepath.Join(dir, "client.crt"), string(fresh.Cert))
	time.Sleep(500 * time.Millisecond) // with the old key: they do not fit together
	r.write(filepath.Join(dir, "client.Key"), string(fresh.Key))
	r.has(someNames...)
	r.eventually("no problem", func() bool { return r.sink.reasons() == "" })
	if lines := r.logs.Matching("WARN", "expired at"); len(lines) != 1 {
		t.Errorf("log %q, want one line", lines)
	}
}

// A machine without a clock of its own begins in the past, where no certificate is valid yet. Once it is, the server is asked again
// soon, with nothing else changed.
func TestCertificatesBecomeValid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		server, client time.Duration // from when the certificate of each is valid
		want           string
	}{
		{"the server's", 4 * time.Second, -time.Hour, "the server's certificate is not valid now"},
		{"the client's", -time.Hour, 4 * time.Second, "the client certificate of system:kube-proxy is valid only from"},
		{"both", 4 * time.Second, 4 * time.Second, "is this machine's clock right?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.api.put(some()...)
			r.hangUp()
			now := time.Now()
			r.listen(r.ca.issue(t, "kube-apiserver", now.Add(tt.server), now.Add(time.Hour)))
			r.byFiles(t, r.ca.issue(t, "system:kube-proxy", now.Add(tt.client), now.Add(time.Hour)), certificateFiles)
			r.start()
			r.eventually("the problem, with its remedy", func() bool {
				return strings.Contains(r.sink.reasons(), tt.want) && strings.Contains(r.sink.reasons(), "is this machine's clock right?")
			})
			if r.sink.isSynced() {
				t.Error("the objects were read before the certificates were valid")
			}
			r.has(someNames...)
			r.eventually("no problem", func() bool { return r.sink.reasons() == "" })
			t.Logf("read %v after they were valid", time.Since(now)-max(tt.server, tt.client))
		})
	}
}

// A certificate that runs out while all works is replaced before the server is asked again.
func TestCertificateRotates(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	r.byFiles(t, r.ca.valid(t, "system:kube-proxy"), certificateFiles)
	r.start()
	r.has(someNames...)
	r.byFiles(t, r.ca.valid(t, "renewed"), certificateFiles)
	r.eventually("a request with the new certificate", func() bool {
		for _, req := range r.api.requestsNow() {
			if req.TLS.PeerCertificates[0].Subject.CommonName == "renewed" {
				return true
			}
		}
		return false
	})
	r.api.put(service("db", "10.43.0.12", nil))
	r.has(append(someNames, "Service default/db@105")...)
}

// A token is read again from its file.
func TestTokenRotates(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	r := newRig(t)
	r.api.put(some()...)
	token := filepath.Join(filepath.Dir(r.kubeconfig), "token")
	r.write(token, "first\n")
	r.byFiles(t, r.ca.valid(t, "x"), "tokenFile: token")
	r.start()
	r.has(someNames...)
	r.write(token, "second\n")
	r.api.misbehave(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Authorization") == "Bearer second" {
			return false
		}
		r.api.status(w, 401, "Unauthorized", "Unauthorized")
		return true
	})
	r.api.put(service("db", "10.43.0.12", nil))
	// client-go reads a token again after a minute.
	r.eventuallyIn(90*time.Second, "the new token works", func() bool {
		return slices.Contains(r.sink.names(), "Service default/db@105")
	})
}

func mustIdentify(t *testing.T, bundle []byte) Identity {
	t.Helper()
	id, err := identify(bundle)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	a, b := newAuthority(t), newAuthority(t)
	both := mustIdentify(t, append(append([]byte{}, b.PEM...), a.PEM...))
	want := append(mustIdentify(t, a.PEM).Authorities, mustIdentify(t, b.PEM).Authorities...)
	slices.Sort(want)
	if diff := cmp.Diff(want, both.Authorities); diff != "" || len(slices.Compact(want)) != 2 {
		t.Errorf("two authorities (-one by one, +together):\n%s", diff)
	}
	swapped := mustIdentify(t, append(append([]byte("# comment\n"), a.PEM...), b.PEM...))
	if diff := cmp.Diff(both, swapped); diff != "" {
		t.Errorf("the order of a bundle changes the identity:\n%s", diff)
	}
	if _, err := identify([]byte("no PEM")); err == nil {
		t.Error("a bundle without a certificate is no error")
	}
	if _, err := ReadIdentity(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadIdentity without a kubeconfig: %v", err)
	}
}

func TestNodeName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	kubelet := filepath.Join(filepath.Dir(r.kubeconfig), "client-kubelet.crt")
	for _, tt := range []struct {
		name string
		cert []byte // nil: there is none
		want string
	}{
		{"no certificate", nil, strings.ToLower(host)},
		{"junk", []byte("junk"), strings.ToLower(host)},
		{"another user's", r.ca.valid(t, "admin").Cert, strings.ToLower(host)},
		{"the kubelet's", r.ca.valid(t, "system:node:pi-4").Cert, "pi-4"},
	} {
		if tt.cert != nil {
			r.write(kubelet, string(tt.cert))
		}
		if got, from, err := NodeName(r.kubeconfig); err != nil || got != tt.want {
			t.Errorf("%s: NodeName = %q from %q, %v; want %q", tt.name, got, from, err, tt.want)
		}
	}
	r.api.put(node("pi-4"))
	r.start(func(o *Options) { o.NodeName = "" })
	r.has("Node /pi-4@101")
}

func TestCheckCert(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		name        string
		from, until time.Duration
		want        string // in the problem; "" for none
	}{
		{"valid", -time.Hour, time.Hour, ""},
		{"expired", -2 * time.Hour, -time.Hour, "expired at"},
		{"of the future", time.Hour, 2 * time.Hour, "is this machine's clock right?"},
	} {
		p := newProblems(slog.New(slog.DiscardHandler))
		w := configWatch{problems: p, current: &kubeconfig{cert: &x509.Certificate{NotBefore: now.Add(tt.from), NotAfter: now.Add(tt.until)}}}
		w.checkCert(now)
		lasting, _ := p.review(now)
		got := ""
		if len(lasting) > 0 {
			got = lasting[0].Reason
		}
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: problem %q, want %q", tt.name, got, tt.want)
		}
	}
}

var _ source.Sink = (*sink)(nil)

func TestKubeconfigWithoutCluster(t *testing.T) {
	for _, text := range []string{"{}", "apiVersion: v1\nkind: Config\n"} {
		path := filepath.Join(t.TempDir(), "k")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readKubeconfig(path); err == nil || !strings.Contains(err.Error(), "names no cluster") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
