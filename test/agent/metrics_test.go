package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/rig"
)

// awaitMetric asks until the sample is what is wanted.
func awaitMetric(t *testing.T, node *lab.Host, sample string, wanted func(float64) bool) {
	t.Helper()
	for deadline := time.Now().Add(rig.Patience); ; time.Sleep(20 * time.Millisecond) {
		got := rig.Metric(t, node, sample)
		if wanted(got) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %g", sample, got)
		}
	}
}

func is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

// TestMetrics has a Service whose endpoints change while it has clients.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--nodeport-addresses", "primary,localhost")
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.Run()
	node := c.Lab.Node
	for path, want := range map[string]string{"proxyMode": "nftables", "healthz": "ok"} {
		if code, body, _ := rig.Get(t, node, "http://127.0.0.1:10249/"+path); code != 200 || body != want {
			t.Errorf("/%s: %d: %s", path, code, body)
		}
	}
	if code, body, _ := rig.Get(t, node, "http://127.0.0.1:10249/configz"); code != 200 || !strings.Contains(body, `"mode":"nftables"`) {
		t.Errorf("/configz: %d: %s", code, body)
	}
	if code, _, _ := rig.Get(t, c.Lab.Outside, fmt.Sprintf("http://%v:10249/metrics", c.Names["node"])); code != 0 {
		t.Errorf("/metrics is served to the network: %d", code)
	}
	for _, f := range []string{"IPv4", "IPv6"} {
		for sample, want := range map[string]float64{
			"sluice_services":  1,
			"sluice_frontends": 4, // two ports, at the ClusterIP and as NodePort
			"sluice_endpoints": 4,
			"kubeproxy_sync_full_proxy_rules_duration_seconds_count":  1,
			"kubeproxy_nftables_localhost_nodeport_listeners":         1,
			"kubeproxy_sync_proxy_rules_nftables_sync_failures_total": 0,
		} {
			awaitMetric(t, node, fmt.Sprintf("%s{ip_family=%q}", sample, f), is(want))
		}
		last := rig.Metric(t, node, fmt.Sprintf("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=%q}", f))
		if age := time.Since(time.UnixMilli(int64(last * 1000))); age < 0 || age > time.Minute {
			t.Errorf("%s was written %v ago", f, age)
		}
	}
	awaitMetric(t, node, "sluice_source_synced", is(1))
	awaitMetric(t, node, `sluice_objects{kind="EndpointSlice"}`, is(2))

	// What two Services claim counts once.
	c.write("younger.yaml", service("younger", "vip2", nodePorts), endpoints("younger", "pod2"))
	awaitMetric(t, node, `sluice_services{ip_family="IPv4"}`, is(2))
	awaitMetric(t, node, `sluice_frontends{ip_family="IPv4"}`, is(6))
	c.Remove("younger.yaml")
	awaitMetric(t, node, `sluice_frontends{ip_family="IPv4"}`, is(4))

	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080", "far1:8080")
	sum := func() (n float64) {
		for key, packets := range c.Counters("vip1") {
			if strings.HasSuffix(key, "tcp") {
				n += float64(packets)
			}
		}
		return n
	}
	before := sum()
	const connections = `sluice_service_new_connections_total{namespace="default",service="web",port="t",protocol="TCP"}`
	if before == 0 {
		t.Fatal("no connections were counted")
	}
	// Nobody asks before the number of endpoints changes.
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	for _, f := range []string{"IPv4", "IPv6"} {
		awaitMetric(t, node, fmt.Sprintf("sluice_endpoints{ip_family=%q}", f), is(2))
		awaitMetric(t, node, fmt.Sprintf("kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=%q}", f), func(n float64) bool { return n >= 1 })
	}
	awaitMetric(t, node, "kubeproxy_sync_proxy_rules_endpoint_changes_pending", is(0))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080")
	after := sum()
	if after <= before {
		t.Errorf("%v connections were counted before the number of endpoints changed, %v in all", before, after)
	}
	awaitMetric(t, node, connections, is(after))
	c.Stop()
	if code, body, _ := rig.Get(t, node, "http://127.0.0.1:10249/metrics"); code != 0 {
		t.Errorf("/metrics after the end: %d: %s", code, body)
	}
}

// TestMetricsOff has an agent that serves none, and one that cannot.
func TestMetricsOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--metrics-bind-address", "")
	c.Run()
	if code, body, _ := rig.Get(t, c.Lab.Node, "http://127.0.0.1:10249/metrics"); code != 0 {
		t.Errorf("%d: %s", code, body)
	}
	c.Stop()
	c.Args = nil
	var taken net.Listener
	if err := c.Lab.Node.Do(func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:10249")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c.Run()
	c.AwaitLog(rig.Soon, "/metrics is not served", "another process has this port")
	c.Stop()
}

// TestNotify is the agent's talk with systemd.
func TestNotify(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	path := filepath.Join(c.Dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.Wrapper = []string{"env", "NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=1000000"}
	// hear waits for a datagram with a line.
	hear := func(line string) string {
		t.Helper()
		b := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(rig.Patience))
		for heard := ""; ; {
			n, err := conn.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("no %s, but\n%s", line, heard)
			}
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(strings.Split(string(b[:n]), "\n"), line) {
				return string(b[:n])
			}
			heard += string(b[:n]) + "\n"
		}
	}
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2", "far1"))
	c.Start()
	hear("READY=1")
	if !strings.Contains(c.Table(proxy.IPv4), "service-ips") {
		t.Error("ready without rules")
	}
	c.write("web2.yaml", service("web2", "vip2", ports), endpoints("web2", "pod2"))
	hear("STATUS=Serving 2 Services, 12 endpoints from manifests " + c.Manifests)
	hear("WATCHDOG=1")
	hear("WATCHDOG=1")
	c.Stop()
	hear("STOPPING=1")
}
