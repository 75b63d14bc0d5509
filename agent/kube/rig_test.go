package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
	"sluice/test/cluster"
	"sluice/test/testlog"
)

func TestMain(m *testing.M) {
	if os.Getenv(memoryServer) != "" {
		os.Exit(followForMemory())
	}
	LogLibraries(slog.New(slog.DiscardHandler))
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // most of the time the tests wait
	os.Exit(m.Run())
}

// sink is a source.Sink that remembers what it was told.
type sink struct {
	mu       sync.Mutex
	objects  map[source.Kind]map[source.Name]metav1.Object
	batches  []int
	replaced map[source.Kind]int
	synced   bool
	problems []source.Problem
	mayLack  bool // what exists and was left out
}

func newSink() *sink {
	return &sink{objects: map[source.Kind]map[source.Name]metav1.Object{}, replaced: map[source.Kind]int{}}
}

func (s *sink) Apply(_ context.Context, changes []source.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, len(changes))
	for _, c := range changes {
		name := source.Name{Namespace: c.Namespace, Name: c.Name}
		if s.objects[c.Kind] == nil {
			s.objects[c.Kind] = map[source.Name]metav1.Object{}
		}
		if s.objects[c.Kind][name] = c.Object; c.Object == nil {
			delete(s.objects[c.Kind], name)
		}
	}
	return nil
}

func (s *sink) Replace(_ context.Context, kind source.Kind, exist map[source.Name]struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaced[kind]++
	maps.DeleteFunc(s.objects[kind], func(name source.Name, _ metav1.Object) bool {
		_, ok := exist[name]
		return !ok
	})
	for name := range exist {
		if s.objects[kind][name] == nil && !s.mayLack {
			panic(fmt.Sprint(kind, " ", name, " exists and was not handed over"))
		}
	}
	return nil
}

func (s *sink) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

func (s *sink) SetProblems(p []source.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = p
}

func (s *sink) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

func (s *sink) replacements(kind source.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced[kind]
}

// names lists the objects as Kind/namespace/name@resourceVersion, sorted.
func (s *sink) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{}
	for kind, objs := range s.objects {
		for name, o := range objs {
			names = append(names, fmt.Sprintf("%s %s/%s@%s", kind, name.Namespace, name.Name, o.GetResourceVersion()))
		}
	}
	slices.Sort(names)
	return names
}

func (s *sink) reasons() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, p := range s.problems {
		all = append(all, p.Where+": "+p.Reason)
	}
	return strings.Join(all, "\n")
}

// rig is an API server on loopback, a kubeconfig for it, and a Source that follows it.
type rig struct {
	*testing.T
	api        *apiServer
	ca         *authority
	addr       string
	kubeconfig string
	server     *http.Server
	listener   net.Listener
	sink       *sink
	logs       *testlog.Records
	source     *Source
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, api: newAPIServer(t), ca: newAuthority(t), addr: "127.0.0.1:0", sink: newSink(), logs: &testlog.Records{}}
	r.kubeconfig = filepath.Join(t.TempDir(), "kubeproxy.kubeconfig")
	r.listen(r.ca.valid(t, "kube-apiserver"))
	t.Cleanup(r.hangUp)
	return r
}

// listen starts the server, at the address that it had before.
func (r *rig) listen(cert cluster.Pair) {
	r.Helper()
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
	r.addr = l.Addr().String()
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.Cert)
	server := &http.Server{
		Handler: r.api, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{tlsOf(r.T, cert)}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
		},
	}
	r.server, r.listener = server, l
	go func() { _ = server.ServeTLS(l, "", "") }()
}

// hangUp stops the server and cuts its connections.
func (r *rig) hangUp() {
	_ = r.server.Close()
	_ = r.listener.Close() // the server closes it only if it has begun to serve
}

// config is a kubeconfig with a client certificate inline.
func (r *rig) config(client cluster.Pair) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: local
  cluster: {server: "https://%s", certificate-authority-data: %s}
contexts:
- {name: Default, context: {cluster: local, user: user, namespace: default}}
current-context: Default
users:
- name: user
  user: {client-certificate-data: %s, client-key-data: %s}
`, r.addr, base64Of(r.ca.PEM), base64Of(client.Cert), base64Of(client.Key))
}

func (r *rig) write(path, text string) {
	r.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// start runs the Source until the test ends.
func (r *rig) start(change ...func(*Options)) {
	r.Helper()
	r.startWith(defaultLimits, change...)
}

func (r *rig) startWith(l limits, change ...func(*Options)) {
	r.Helper()
	r.startInto(r.sink, l, change...)
}

func (r *rig) startInto(into source.Sink, l limits, change ...func(*Options)) {
	r.Helper()
	o := Options{Kubeconfig: r.kubeconfig, NodeName: "pi", Log: slog.New(r.logs)}
	for _, c := range change {
		c(&o)
	}
	r.source = New(o)
	r.source.poll, r.source.limits = 100*time.Millisecond, l
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- r.source.Run(ctx, into) }()
	r.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				r.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			r.Error("Run did not end within 10 s of its context")
		}
	})
}

// startSynced starts with a kubeconfig in place and waits until everything was read.
func (r *rig) startSynced(change ...func(*Options)) {
	r.Helper()
	r.write(r.kubeconfig, r.config(r.ca.valid(r.T, "system:kube-proxy")))
	r.start(change...)
	r.eventually("synced", r.sink.isSynced)
}

func (r *rig) eventually(what string, holds func() bool) {
	r.Helper()
	r.eventuallyIn(30*time.Second, what, holds)
}

func (r *rig) eventuallyIn(limit time.Duration, what string, holds func() bool) {
	r.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not within %v: %s\nobjects %q\nproblems %s\nlog %s", limit, what, r.sink.names(), r.sink.reasons(), strings.Join(r.logs.Matching(), "\n"))
		}
	}
}

// has waits until the sink has exactly these objects.
func (r *rig) has(want ...string) {
	r.Helper()
	slices.Sort(want)
	r.eventually(fmt.Sprintf("objects %q", want), func() bool { return slices.Equal(r.sink.names(), want) })
}
