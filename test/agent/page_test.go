package agent

import (
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/test/browser"
	"sluice/test/rig"
)

var shots = flag.String("screenshots", "", "write images of the status page into this directory")

// pageNames are Services as one finds them.
var pageNames = []string{
	"default/kubernetes", "default/registry", "home/assistant", "home/mosquitto", "home/zigbee2mqtt", "home/node-red", "home/frigate", "home/esphome",
	"kube-system/kube-dns", "kube-system/metrics-server", "kube-system/traefik", "media/jellyfin", "media/navidrome", "media/immich-server", "media/immich-machine-learning",
	"media/paperless", "monitoring/alertmanager-operated", "monitoring/grafana", "monitoring/loki", "monitoring/prometheus", "monitoring/blackbox-exporter",
	"net/adguard-dns", "net/adguard-web", "net/unifi-controller", "net/wireguard", "storage/minio", "storage/minio-console", "storage/nfs-provisioner", "storage/postgres",
	"storage/postgres-replicas", "storage/redis",
}

// household writes them, each with up to three endpoints, one of which is not ready here and there.
func (c *cluster) household() {
	c.T.Helper()
	var all strings.Builder
	for i, name := range pageNames {
		namespace, name, _ := strings.Cut(name, "/")
		ports := "ports: [{name: t, port: 80}]"
		if i%5 == 2 {
			ports = fmt.Sprintf("type: NodePort, ports: [{name: t, port: 80, nodePort: %d}, {name: u, port: 53, nodePort: %d, protocol: UDP}]", 30100+i, 30200+i)
		}
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {clusterIP: 10.96.9.%d, clusterIPs: [10.96.9.%[3]d, "fd00:96::9:%[3]x"], ipFamilyPolicy: RequireDualStack, %s}
`, name, namespace, i+1, ports)
		for family, hosts := range map[string][]string{"IPv4": {"$pod2", "$pod3", "$far1"}, "IPv6": {"$pod2v6", "$pod3v6", "$far1v6"}} {
			fmt.Fprintf(&all, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, namespace: %s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[4]s
ports: [{name: t, port: 8080}, {name: u, port: 8080, protocol: UDP}]
endpoints:
`, name, strings.ToLower(family), namespace, family)
			for e := range 1 + i%3 {
				fmt.Fprintf(&all, "- {addresses: [\"%s\"], nodeName: node, conditions: {ready: %v}}\n", hosts[e], i%7 != 5 || e > 0)
			}
		}
	}
	c.write("household.yaml", all.String())
}

// TestPage has a household with clients, a fault in a manifest, and two Services that want the same NodePort.
func TestPage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.household()
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2", "far1"))
	c.write("younger.yaml", strings.Replace(service("younger", "vip2", nodePorts), "2026", "2027", 1), endpoints("younger", "pod2"))
	c.write("fault.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: <b>bold</b>}\nspec: {ports: [{port: 80}]}\n")
	c.Run()
	c.AwaitProblem(rig.Patience, "fault.yaml")
	streams := c.Connect(20*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080")
	for i, every := range map[int]time.Duration{4: 90, 8: 25, 11: 160, 17: 240, 30: 55} { // in ms
		c.Names["busy"], c.Names["busyv6"] = netip.AddrFrom4([4]byte{10, 96, 9, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("fd00:96::9:%x", i+1))
		streams = append(streams, c.Connect(every*time.Millisecond, "pod1 tcp busy:80")...)
	}
	defer func() { rig.EndUndisturbed(t, streams, "pod2:8080", "pod3:8080", "far1:8080") }()
	const url = "http://127.0.0.1:10249/"
	var page string
	c.Eventually(rig.Patience, "rates", func() bool {
		var code int
		var header http.Header
		code, page, header = rig.Get(t, c.Lab.Node, url)
		if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-") {
			t.Fatalf("%d: %v\n%s", code, header, page)
		}
		return !strings.Contains(page, "<b>0</b><span class=\"dim\">new connections/s")
	})
	for _, want := range []string{
		"<h1>sluice on node</h1>", "<b>33</b><span class=\"dim\">Services", "default/web</td>", ">media/immich-machine-learning", "10.96.9.15, fd00:96::9:f",
		"belongs to default/web", "&lt;b&gt;bold", "<dt>mode</dt><dd>nftables",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>bold") {
		t.Error("what a manifest has is not escaped")
	}
	if code, _, _ := rig.Get(t, c.Lab.Outside, fmt.Sprintf("http://%v:10249/", c.Names["node"])); code != 0 {
		t.Errorf("the page is served to the network: %d", code)
	}
	t.Run("browser", func(t *testing.T) {
		b := browser.Start(t, c.NS)
		for _, l := range []browser.Look{{Width: 390, Height: 844, Mobile: true}, {Width: 390, Height: 844, Mobile: true, Dark: true}, {Width: 1280, Height: 800}, {Width: 1280, Height: 800, Dark: true}, {Width: 320, Height: 568, Mobile: true}} {
			for _, whole := range []bool{false, true} {
				seen, err := b.See(url+"?sort=rate&refresh=60", l, whole)
				if err != nil {
					t.Fatal(err)
				}
				if seen.Width > float64(l.Width) || seen.Height < float64(l.Height) {
					t.Errorf("%+v: the page is %v wide and %v high", l, seen.Width, seen.Height)
				}
				if *shots != "" {
					file := filepath.Join(*shots, fmt.Sprintf("page-%d-dark-%v-whole-%v.png", l.Width, l.Dark, whole))
					if err := os.WriteFile(file, seen.PNG, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
