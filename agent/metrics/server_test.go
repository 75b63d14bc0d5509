package metrics

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/config"
	"sluice/agent/httpserver"
	"sluice/proxy"
)

func testConfig() *config.Config {
	return &config.Config{
		NodeName: "pi", Manifests: "/m", Kubeconfig: "/k", MasqueradeAll: true,
		ClusterCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/56")},
		DetectLocalMode: proxy.DetectBridgeInterface, PodBridgeInterface: "cni0", NodePortAddresses: []string{"primary"},
		SyncPeriod: 30 * time.Second, MinSyncPeriod: 100 * time.Millisecond,
		HealthzBindAddress: netip.MustParseAddrPort("0.0.0.0:10256"), MetricsServices: 500,
		DataDir: "/d", CacheCommitInterval: 5 * time.Second, Socket: "/s", ExternalIPs: "foreign", LogLevel: slog.LevelDebug, LogFormat: config.LogText,
	}
}

// startServer returns the address.
func startServer(t *testing.T, r *Recorder, c *config.Config) string {
	t.Helper()
	at := make(chan string, 1)
	o := ServeOptions{Mode: proxy.ModeNFTables, Config: c, Options: httpserver.Options{
		Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
			l, err := new(net.ListenConfig).Listen(ctx, network, address)
			if err == nil {
				at <- l.Addr().String()
			}
			return l, err
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx, netip.MustParseAddrPort("127.0.0.1:0"), r, o)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return "http://" + <-at
}

func get(t *testing.T, url string) (status int, contentType, body string) {
	t.Helper()
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

func TestServe(t *testing.T) {
	r := newRecorder(t, newClock())
	r.Queued(proxy.IPv4)
	at := startServer(t, r, testConfig())
	for path, want := range map[string]string{"/proxyMode": "nftables", "/healthz": "ok"} {
		if status, contentType, body := get(t, at+path); status != 200 || contentType != "text/plain; charset=utf-8" || body != want {
			t.Errorf("%s: %d, %s, %q", path, status, contentType, body)
		}
	}
	status, contentType, body := get(t, at+"/metrics")
	if status != 200 || contentType != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("/metrics: %d, %s", status, contentType)
	}
	all := parse(t, body)
	if got := all["kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"].samples[`{ip_family="IPv4"}`]; got != 1_800_000_000 {
		t.Errorf("queued at %g", got)
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "go_goroutines"} {
		if got := all[name].samples[""]; got <= 0 && name != "process_cpu_seconds_total" || len(all[name].samples) != 1 {
			t.Errorf("%s = %g", name, got)
		}
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
		if status, _, _ := get(t, at+path); status != 404 {
			t.Errorf("%s: %d, want 404", path, status)
		}
	}
	// A page of the web whose name leads to the loopback address.
	for _, path := range []string{"/metrics", "/configz"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "attacker.example"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s for another host: %d", path, resp.StatusCode)
		}
	}
	if resp, err := http.Post(at+"/metrics", "", nil); err != nil || resp.StatusCode != 405 {
		t.Errorf("POST /metrics: %v, %v", resp, err)
	}
}

func TestConfigz(t *testing.T) {
	_, contentType, body := get(t, startServer(t, newRecorder(t, newClock()), testConfig())+"/configz")
	var got, want any
	const expected = `{
		"kubeproxy.config.k8s.io": {
			"kind": "KubeProxyConfiguration", "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
			"clientConnection": {"kubeconfig": "/k"}, "hostnameOverride": "pi",
			"healthzBindAddress": "0.0.0.0:10256", "metricsBindAddress": "", "enableProfiling": false, "mode": "nftables",
			"nftables": {"masqueradeAll": true, "syncPeriod": "30s", "minSyncPeriod": "100ms"},
			"detectLocalMode": "BridgeInterface", "detectLocal": {"bridgeInterface": "cni0", "interfaceNamePrefix": ""},
			"clusterCIDR": "10.42.0.0/16,fd42::/56", "nodePortAddresses": ["primary"]
		},
		"sluice": {"manifests": "/m", "dataDir": "/d", "cacheCommitInterval": "5s", "socket": "/s", "externalIPs": "foreign", "metricsServices": 500, "logLevel": "debug", "logFormat": "text"}
	}`
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(expected), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || contentType != "application/json" {
		t.Errorf("%s (-want +got):\n%s", contentType, diff)
	}
}

func TestProfiling(t *testing.T) {
	c := testConfig()
	c.Profiling = true
	at := startServer(t, newRecorder(t, newClock()), c)
	if status, _, body := get(t, at+"/debug/pprof/goroutine?debug=1"); status != 200 || !strings.Contains(body, "TestProfiling") {
		t.Errorf("goroutine: %d\n%s", status, body)
	}
	for _, path := range []string{"heap", "allocs", "profile?seconds=1"} {
		status, contentType, body := get(t, at+"/debug/pprof/"+path)
		if status != 200 || contentType != "application/octet-stream" || !strings.HasPrefix(body, "\x1f\x8b") {
			t.Errorf("%s: %d, %s, %d bytes without the mark of gzip", path, status, contentType, len(body))
		}
	}
	if testing.Short() {
		return
	}
	// Longer than other answers may take to be asked for and sent.
	begin := time.Now()
	if status, _, body := get(t, at+"/debug/pprof/profile?seconds=7"); status != 200 || time.Since(begin) < 7*time.Second || len(body) == 0 {
		t.Errorf("7 s of CPU profile: %d, %d bytes after %v", status, len(body), time.Since(begin))
	}
}
