package agent

import (
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/test/lab"
	"sluice/test/rig"
)

// canary stands for all that is secret.
const canary = "c4n4ry"

// secretCase is a kubeconfig, or an environment, with a secret in it.
type secretCase struct {
	name string
	// cluster and user are the kubeconfig's; $server is a server that accepts nobody, $dir a directory with the files secret and plugin.
	cluster, user string
	env           []string
	// used: the secret must have been sent, so that the case is one.
	used bool
	// dryRun asks a dry run, too, which waits ten seconds for the server.
	dryRun bool
}

var secretCases = []secretCase{
	{name: "token", user: "token: " + canary, used: true},
	{name: "token file", user: "tokenFile: $dir/secret", used: true},
	{name: "password", user: "{username: pi, password: " + canary + "}", used: true},
	{name: "password in the server's URL", cluster: "server: https://pi:" + canary + "@$server", used: true, dryRun: true},
	{name: "password in a URL without a host", cluster: "server: https://pi:" + canary},
	{name: "password in a URL that is none", cluster: `server: "https://pi:` + canary + `@bad host"`},
	{name: "password in a URL with a bad port", cluster: "server: https://pi:" + canary + "@127.0.0.1:x"},
	{name: "exec plugin", user: "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: $dir/plugin, args: [" + canary + "]}", used: true},
	{name: "exec plugin that is not there", user: "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: $dir/none, args: [" + canary +
		"], env: [{name: X, value: " + canary + "}]}"},
	{name: "proxy", cluster: "proxy-url: http://pi:" + canary + "@127.0.0.1:1"},
	{name: "proxy that refuses", cluster: "proxy-url: http://pi:" + canary + "@$plain", used: true},
	{name: "proxy without a scheme", cluster: `proxy-url: "pi:` + canary + `@127.0.0.1:1"`},
	{name: "proxy of another scheme", cluster: `proxy-url: "ftp://pi:` + canary + `@127.0.0.1:1"`},
	{name: "proxy in the environment", env: []string{"HTTPS_PROXY=http://pi:" + canary + "@192.0.2.1:1", "NO_PROXY=none"}},
	{name: "bad proxy in the environment", env: []string{"HTTPS_PROXY=http://pi:" + canary + "@192.0.2.1:x"}, cluster: "server: https://192.0.2.7:6443", dryRun: true},
	{name: "key", user: "{client-certificate-data: " + base64.StdEncoding.EncodeToString([]byte(canary)) + ", client-key-data: " +
		base64.StdEncoding.EncodeToString([]byte(canary)) + "}"},
	{name: "key that is not base64", user: "client-key-data: " + canary + "!"},
	{name: "key file", user: "{client-certificate: $dir/secret, client-key: $dir/secret}"},
	{name: "list for a token", user: "token: [" + canary + "]"},
	{name: "cut off", user: "{token: " + canary},
	{name: "no YAML", user: "*" + canary},
}

// TestSecrets looks for secrets in all that an agent and the commands say, at the highest log level.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, test := range secretCases {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}

func (s *secretCase) run(t *testing.T) {
	t.Parallel()
	ns := lab.NewTestNamespace(t)
	p := rig.NewProcess(t, ns, "--log-level", "debug", "--profiling")
	sent := make(chan struct{}, 100)
	server := func(secure bool) string {
		l, err := ns.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		refuse := func(w http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			proxy := r.Header.Get("Proxy-Authorization")
			if strings.HasSuffix(r.Header.Get("Authorization"), canary) || password == canary || strings.HasSuffix(proxy, base64.StdEncoding.EncodeToString([]byte("pi:"+canary))) {
				select {
				case sent <- struct{}{}:
				default:
				}
			}
			code := http.StatusUnauthorized
			if r.Method == http.MethodConnect {
				code = http.StatusProxyAuthRequired
			}
			http.Error(w, "not you", code)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(refuse), ErrorLog: log.New(io.Discard, "", 0)}}
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return l.Addr().String()
	}
	values := map[string]string{"server": server(true), "plain": server(false), "dir": p.Dir}
	for file, text := range map[string]string{
		"secret": canary,
		"plugin": `#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "` + canary + `"}}'`,
	} {
		if err := os.WriteFile(filepath.Join(p.Dir, file), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cluster, user := "server: https://$server", "{}"
	switch {
	case strings.HasPrefix(s.cluster, "server:"):
		cluster = s.cluster
	case s.cluster != "":
		cluster += "\n    " + s.cluster
	}
	if s.user != "" {
		user = s.user
	}
	p.Kubeconfig = filepath.Join(p.Dir, "kubeconfig")
	text := os.Expand(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    insecure-skip-tls-verify: true
    %s
contexts:
- {name: c, context: {cluster: local, user: u}}
current-context: c
users:
- name: u
  user:
    %s
`, cluster, user), func(name string) string { return values[name] })
	if err := os.WriteFile(p.Kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Wrapper = append([]string{"env"}, s.env...)
	p.Start()
	p.Await(rig.Patience, "a problem", func(s status.Status) bool { return len(s.Problems) > 0 })
	said := map[string]string{}
	questions := [][]string{{"status"}, {"status", "-o", "json"}, {"get", "services"}, {"explain", "192.0.2.1:80"}, {"diff"},
		{"check", "--kubeconfig", p.Kubeconfig}}
	if s.dryRun {
		questions = append(questions, []string{"agent", "--dry-run", "--kubeconfig", p.Kubeconfig, "--hostname-override", "node", "--log-level", "debug"})
	}
	for _, args := range questions {
		stdout, stderr, _ := p.Command(args...)
		said[strings.Join(args, " ")] = stdout + stderr
	}
	for _, path := range []string{"/", "/metrics", "/configz", "/healthz", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		_, said[path], _ = rig.Get(t, &lab.Host{Namespace: ns}, "http://127.0.0.1:10249"+path)
	}
	_, said["health"], _ = rig.Get(t, &lab.Host{Namespace: ns}, "http://127.0.0.1:10256/healthz")
	if s.used {
		select {
		case <-sent:
		case <-time.After(rig.Patience):
			t.Error("the secret was never sent")
		}
	}
	p.End(syscall.SIGABRT) // Go's runtime prints what all goroutines do, as for a panic
	said["log"] = p.Log.String()
	if !strings.Contains(said["log"], "SIGABRT") {
		t.Error("there is no trace in the log")
	}
	for what, text := range said {
		for line := range strings.Lines(text) {
			if strings.Contains(line, canary) {
				t.Errorf("%s: %s", what, line)
			}
		}
	}
	if said["status"] == "" || !strings.Contains(said["/configz"], "kubeconfig") {
		t.Errorf("nothing was said: %v", said)
	}
}
