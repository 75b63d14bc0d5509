package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/test/kubeproxy"
	"sluice/test/lab"
)

// What kube-proxy shows and we do not, with the reason.
var notOurs = map[string]string{
	"kubeproxy_nftables_localhost_nodeport_rejected_packets_total": "our rules have no counter there",
}

// What kube-proxy shows only after a failure of nftables.
var onlyAfterFailures = []string{
	"kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
	"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
}

// TestAsKubeProxy compares names, types, labels and buckets with those of a real
// kube-proxy, and what is served beside the metrics.
func TestAsKubeProxy(t *testing.T) {
	dir, err := exec.Command("../../test/peers/build", "--dir").Output()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(strings.TrimSpace(string(dir)), "kube-proxy")
	if _, err := os.Stat(binary); err != nil {
		t.Skipf("no kube-proxy to compare with (%v); test/peers/build makes it", err)
	}
	ns := newKubeProxy(t, binary)
	ask := func(path string) (string, http.Header) {
		resp, err := ns.client.Get("http://127.0.0.1:10249" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body), resp.Header
	}

	r := newRecorder(t, newClock())
	ours := scrape(t, r)
	var theirs map[string]parsed
	for _, path := range []string{"/healthz", "/livez"} {
		if resp, err := ns.client.Get("http://127.0.0.1:10256" + path); err == nil {
			resp.Body.Close()
		}
	}
	await := func(name string, samples int) {
		for range 100 {
			page, _ := ask("/metrics")
			if theirs = parse(t, page); len(theirs[name].samples) >= samples {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Errorf("kube-proxy has not %d samples of %s in time", samples, name)
	}
	await("kubeproxy_sync_proxy_rules_last_timestamp_seconds", 2)
	close(ns.api.change)
	await("kubeproxy_sync_partial_proxy_rules_duration_seconds", 1)
	seen := 0
	for name, their := range theirs {
		if !strings.HasPrefix(name, "kubeproxy_") {
			continue
		}
		our, ok := ours[name]
		if !ok {
			if notOurs[name] == "" {
				t.Errorf("kube-proxy has %s (%s)", name, their.typ)
			}
			continue
		}
		seen++
		type form struct {
			Type           string
			Labels, Bounds []string
		}
		if diff := cmp.Diff(form{their.typ, their.labelNames(), their.bounds()}, form{our.typ, our.labelNames(), our.bounds()}); diff != "" {
			t.Errorf("%s (-kube-proxy +sluice):\n%s", name, diff)
		}
	}
	t.Logf("%d metrics compared", seen)
	for name := range ours {
		if _, ok := theirs[name]; !ok && strings.HasPrefix(name, "kubeproxy_") && !slices.Contains(onlyAfterFailures, name) {
			t.Errorf("kube-proxy has no %s", name)
		}
	}

	at := startServer(t, r, testConfig())
	for _, path := range []string{"/proxyMode", "/healthz"} {
		body, header := ask(path)
		if status, contentType, our := get(t, at+path); status != 200 || our != body || contentType != header.Get("Content-Type") {
			t.Errorf("%s: %d %q %q, kube-proxy says %q %q", path, status, contentType, our, header.Get("Content-Type"), body)
		}
	}
	body, header := ask("/configz")
	_, contentType, our := get(t, at+"/configz")
	if contentType != header.Get("Content-Type") {
		t.Errorf("/configz: %s, kube-proxy says %s", contentType, header.Get("Content-Type"))
	}
	var theirConfig, ourConfig map[string]map[string]any
	if err := json.Unmarshal([]byte(body), &theirConfig); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(our), &ourConfig); err != nil {
		t.Fatal(err)
	}
	const key = "kubeproxy.config.k8s.io"
	for name, v := range ourConfig[key] {
		their, ok := theirConfig[key][name]
		if !ok || fmt.Sprintf("%T", their) != fmt.Sprintf("%T", v) {
			t.Errorf("/configz: %s is %T, in kube-proxy's %T", name, v, their)
		}
		if inner, ok := v.(map[string]any); ok {
			for name := range inner {
				if _, ok := their.(map[string]any)[name]; !ok {
					t.Errorf("/configz: kube-proxy has no %s", name)
				}
			}
		}
	}
	if mode := ourConfig[key]["mode"]; mode != proxy.ModeNFTables || mode != theirConfig[key]["mode"] {
		t.Errorf("/configz: mode %v, kube-proxy says %v", mode, theirConfig[key]["mode"])
	}
}

// runningKubeProxy is a kube-proxy in a network namespace.
type runningKubeProxy struct {
	client http.Client
	api    *testAPI
}

// newKubeProxy starts kube-proxy before an API that has a node, a dual-stack
// Service with a NodePort, and its slices.
func newKubeProxy(t *testing.T, binary string) *runningKubeProxy {
	ns := lab.NewTestNamespace(t, "address add 192.168.1.5/32 dev lo", "address add fd00::5/128 dev lo nodad")
	listen := func(address string) net.Listener {
		l, err := ns.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	taken := listen("127.0.0.1:30080") // so that it fails to listen for the NodePort
	t.Cleanup(func() { taken.Close() })
	api := &testAPI{change: make(chan struct{})}
	server := http.Server{Handler: api}
	l := listen("127.0.0.1:0")
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })

	dir := t.TempDir()
	config := kubeproxy.Config{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), ContentType: "application/json", HostnameOverride: "n",
		NodePortAddresses: []string{"primary", "localhost"}, FeatureGates: map[string]bool{"KubeProxyNFTablesLocalhostNodePorts": true},
	}
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://%s"}}]}`, l.Addr())
	if err := os.WriteFile(config.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	process, err := kubeproxy.Start(ns, binary, dir, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("kube-proxy:\n%s", process.Output())
		}
	})
	k := &runningKubeProxy{api: api, client: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: ns.Dial}}}
	for range 150 {
		if resp, err := k.client.Get("http://127.0.0.1:10249/healthz"); err == nil {
			resp.Body.Close()
			return k
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatal("kube-proxy does not serve its metrics in time")
	return nil
}

// testAPI answers lists. Who watches EndpointSlices hears of a change when change is closed.
type testAPI struct{ change chan struct{} }

func (a *testAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.FormValue("sendInitialEvents") == "true" {
		http.Error(w, "not here", http.StatusUnprocessableEntity)
		return
	}
	slice := func(version int, family string, endpoint netip.Addr) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"dns-%s","resourceVersion":"%d","labels":{"kubernetes.io/service-name":"dns"},
			"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"%s"}},"addressType":"%s",
			"ports":[{"name":"tcp","port":8080,"protocol":"TCP"},{"name":"udp","port":8080,"protocol":"UDP"}],
			"endpoints":[{"addresses":["%v"],"conditions":{"ready":true}}]}`,
			strings.ToLower(family), version, time.Now().Add(time.Minute).UTC().Format(time.RFC3339), family, endpoint)
	}
	w.Header().Set("Content-Type", "application/json")
	if r.FormValue("watch") == "true" {
		w.(http.Flusher).Flush()
		if strings.HasSuffix(r.URL.Path, "/endpointslices") {
			select {
			case <-a.change:
			case <-r.Context().Done():
			}
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, strings.Replace(slice(2, "IPv4", netip.MustParseAddr("10.42.0.10")),
				"{", `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",`, 1))
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	lists := map[string][3]string{
		"/api/v1/nodes": {"v1", "NodeList", `{"metadata":{"name":"n","resourceVersion":"1"},"spec":{"podCIDRs":["10.42.0.0/24","fd42::/64"],"podCIDR":"10.42.0.0/24"},
			"status":{"addresses":[{"type":"InternalIP","address":"192.168.1.5"},{"type":"InternalIP","address":"fd00::5"}]}}`},
		"/api/v1/services": {"v1", "ServiceList", `{"metadata":{"namespace":"ns","name":"dns","resourceVersion":"1"},"spec":{"type":"NodePort","clusterIP":"10.96.0.1",
			"clusterIPs":["10.96.0.1","fd96::1"],"ipFamilies":["IPv4","IPv6"],"externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","sessionAffinity":"None",
			"ports":[{"name":"tcp","port":53,"nodePort":30080,"protocol":"TCP"},{"name":"udp","port":53,"nodePort":30080,"protocol":"UDP"}]}}`},
		"/apis/discovery.k8s.io/v1/endpointslices": {"discovery.k8s.io/v1", "EndpointSliceList",
			slice(1, "IPv4", netip.MustParseAddr("10.42.0.9")) + "," + slice(1, "IPv6", netip.MustParseAddr("fd42::9"))},
		"/apis/networking.k8s.io/v1/servicecidrs": {"networking.k8s.io/v1", "ServiceCIDRList", ""},
	}
	list, ok := lists[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	fmt.Fprintf(w, `{"apiVersion":"%s","kind":"%s","metadata":{"resourceVersion":"1"},"items":[%s]}`, list[0], list[1], list[2])
}
