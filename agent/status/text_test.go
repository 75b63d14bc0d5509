package status

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/source"
	"sluice/agent/sysctl"
	"sluice/proxy"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestStatusWrite(t *testing.T) {
	healthy := Status{
		Healthy: true, Version: "v0.1.0", PID: 412, Started: now.Add(-49 * time.Hour), Mode: "nftables",
		Node: "pi", NodeKnown: true, NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		NodePortAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Detection:         "IPv4: sources in 10.42.0.0/16 count as pods (ClusterCIDR: --cluster-cidr).\nIPv6: no source counts as a pod, because of this.",
		Source:            "manifests /etc/sluice", Synced: true,
		Objects: map[source.Kind]int{source.Service: 3, source.EndpointSlice: 4, source.Node: 1},
		Flows:   &sysctl.Flows{Count: 119, Max: 32768},
		Families: []Family{
			{Family: proxy.IPv4, Services: 3, Frontends: 7, Endpoints: 9, LastSync: now.Add(-12 * time.Second)},
			{Family: proxy.IPv6, Services: 1, Frontends: 1, Endpoints: 1, LastSync: now.Add(-12 * time.Second), Repairs: 1},
		},
	}
	ill := healthy
	ill.Healthy, ill.Reasons = false, []string{"IPv6 rules could not be written 3 times."}
	nodeless := healthy
	nodeless.NodeKnown, nodeless.NodePortAddresses, nodeless.Families = false, nil, nil
	fresh := ill
	fresh.NodeKnown, fresh.NodePortAddresses, fresh.Synced, fresh.Objects, fresh.Detection, fresh.Families = false, nil, false, nil, "", nil
	ill.NodeKnown, ill.NodePortAddresses, ill.Synced, ill.Objects = false, nil, false, nil
	ill.Flows = &sysctl.Flows{Count: 32700, Max: 32768}
	ill.Families = []Family{{Family: proxy.IPv6, LastError: "no such device", RetryAt: now.Add(4 * time.Second), Pending: true}}
	ill.Problems = []source.Problem{{Where: "web.yaml document 2", Reason: "spec.ports[0].port: 0 is outside 1-65535", Since: now.Add(-5 * time.Minute)}}
	ill.Conflicts = []string{"shop/web: 192.0.2.1:30080/TCP belongs to shop/old"}

	tests := []struct {
		name string
		Status
		want string
	}{
		{"healthy", healthy, `
sluice     healthy, version v0.1.0, pid 412, up 2d1h
mode       nftables
node       pi, at 192.0.2.1, 2001:db8::1
nodeports  192.0.2.1
pods       IPv4: sources in 10.42.0.0/16 count as pods (ClusterCIDR: --cluster-cidr).
           IPv6: no source counts as a pod, because of this.
source     manifests /etc/sluice, synced, 4 EndpointSlice, 1 Node, 3 Service
flows      119 of 32768 connections are in use
IPv4       3 services, 7 frontends, 9 distinct endpoints; written 12s ago; 0 repairs
IPv6       1 service, 1 frontend, 1 distinct endpoint; written 12s ago; 1 repair
`},
		{"without a Node", nodeless, `
sluice     healthy, version v0.1.0, pid 412, up 2d1h
mode       nftables
node       pi (there is no Node object of that name), at 192.0.2.1, 2001:db8::1
nodeports  none
pods       IPv4: sources in 10.42.0.0/16 count as pods (ClusterCIDR: --cluster-cidr).
           IPv6: no source counts as a pod, because of this.
source     manifests /etc/sluice, synced, 4 EndpointSlice, 1 Node, 3 Service
flows      119 of 32768 connections are in use
`},
		{"before the source answers", fresh, `
sluice     not healthy, version v0.1.0, pid 412, up 2d1h
           IPv6 rules could not be written 3 times.
mode       nftables
node       pi (its Node object is not known yet), at 192.0.2.1, 2001:db8::1
nodeports  not known yet
pods       not known yet
source     manifests /etc/sluice, not synced yet
flows      119 of 32768 connections are in use
`},
		{"ill", ill, `
sluice     not healthy, version v0.1.0, pid 412, up 2d1h
           IPv6 rules could not be written 3 times.
mode       nftables
node       pi (its Node object is not known yet), at 192.0.2.1, 2001:db8::1
nodeports  not known yet
pods       IPv4: sources in 10.42.0.0/16 count as pods (ClusterCIDR: --cluster-cidr).
           IPv6: no source counts as a pod, because of this.
source     manifests /etc/sluice, not synced yet
flows      32700 of 32768 connections are in use: new ones are dropped; sysctl -w net.netfilter.nf_conntrack_max=65536 on the host
IPv6       0 services, 0 frontends, 0 distinct endpoints; never written, changes waiting; 0 repairs
           last error: no such device
           next try in 4s

Problems:
  web.yaml document 2: spec.ports[0].port: 0 is outside 1-65535 (for 5m)

Not served:
  shop/web: 192.0.2.1:30080/TCP belongs to shop/old
`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			if err := test.Write(&b, now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), b.String()); diff != "" {
				t.Errorf("wrong text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteServices(t *testing.T) {
	services := []Service{
		{Namespace: "default", Name: "kubernetes", Type: "ClusterIP", ClusterIPs: []string{"10.43.0.1"}, InternalTrafficPolicy: "Cluster",
			Ports: []ServicePort{{Port: 443, Protocol: "TCP"}}, Endpoints: []EndpointCount{{Used: 1, Total: 1}}, Created: now.Add(-24 * 40 * time.Hour)},
		{Namespace: "shop", Name: "web", Type: "LoadBalancer", ClusterIPs: []string{"10.43.7.9", "fd43::9"}, ExternalIPs: []string{"198.51.100.1"},
			Ports:     []ServicePort{{Port: 80, NodePort: 30080, Protocol: "TCP"}, {Port: 53, Protocol: "UDP"}},
			Endpoints: []EndpointCount{{Used: 2, Total: 3}, {Used: 0, Total: 3}}, AffinitySeconds: 10800,
			InternalTrafficPolicy: "Local", ExternalTrafficPolicy: "Local", SourceRanges: []string{"203.0.113.0/24"}, NotServed: []string{"one", "two"}},
	}
	tests := []struct {
		wide bool
		want string
	}{
		{false, `
NAMESPACE   NAME         TYPE           CLUSTER-IP   EXTERNAL-IP    PORT(S)               ENDPOINTS   AGE
default     kubernetes   ClusterIP      10.43.0.1    <none>         443/TCP               1/1         40d
shop        web          LoadBalancer   10.43.7.9    198.51.100.1   80:30080/TCP,53/UDP   2/3,0/3     <unknown>
`},
		{true, `
NAMESPACE   NAME         TYPE           CLUSTER-IP          EXTERNAL-IP    PORT(S)               ENDPOINTS   AGE         INT-POLICY   EXT-POLICY   AFFINITY   SOURCE-RANGES    NOT-SERVED
default     kubernetes   ClusterIP      10.43.0.1           <none>         443/TCP               1/1         40d         Cluster      <none>       <none>     <none>
shop        web          LoadBalancer   10.43.7.9,fd43::9   198.51.100.1   80:30080/TCP,53/UDP   2/3,0/3     <unknown>   Local        Local        3h         203.0.113.0/24   one; two
`},
	}
	for _, test := range tests {
		var b strings.Builder
		if err := WriteServices(&b, services, test.wide, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), b.String()); diff != "" {
			t.Errorf("wide %t (-want +got):\n%s", test.wide, diff)
		}
	}
}

func TestWriteEndpoints(t *testing.T) {
	endpoints := []Endpoint{
		{Namespace: "shop", Service: "web", Port: "http", Protocol: "TCP", Address: netip.MustParseAddrPort("10.42.0.1:8080"), Node: "pi",
			Ready: true, Serving: true, Local: true, Used: UsedYes, HintZones: []string{"a", "b"}, HintNodes: []string{"pi"}},
		{Namespace: "shop", Service: "web", Protocol: "UDP", Address: netip.MustParseAddrPort("[fd42::1]:53"),
			Serving: true, Terminating: true, Used: UsedNo, Reason: "terminating"},
	}
	tests := []struct {
		wide bool
		want string
	}{
		{false, `
NAMESPACE   SERVICE   PORT       ADDRESS          NODE     READY   SERVING   TERMINATING   LOCAL   USED   REASON
shop        web       http/TCP   10.42.0.1:8080   pi       yes     yes       no            yes     yes
shop        web       UDP        [fd42::1]:53     <none>   no      yes       yes           no      no     terminating
`},
		{true, `
NAMESPACE   SERVICE   PORT       ADDRESS          NODE     READY   SERVING   TERMINATING   LOCAL   USED   HINTS                   REASON
shop        web       http/TCP   10.42.0.1:8080   pi       yes     yes       no            yes     yes    zone=a,zone=b,node=pi
shop        web       UDP        [fd42::1]:53     <none>   no      yes       yes           no      no     <none>                  terminating
`},
	}
	for _, test := range tests {
		var b strings.Builder
		if err := WriteEndpoints(&b, endpoints, test.wide); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), b.String()); diff != "" {
			t.Errorf("wide %t (-want +got):\n%s", test.wide, diff)
		}
	}
}

func TestDuration(t *testing.T) {
	tests := map[time.Duration]string{
		0:                          "0s",
		119 * time.Second:          "119s",
		2*time.Minute + 30_000_000: "2m",
		150 * time.Second:          "2m30s",
		45 * time.Minute:           "45m",
		200 * time.Minute:          "3h20m",
		30 * time.Hour:             "30h",
		50 * time.Hour:             "2d2h",
		9 * 24 * time.Hour:         "9d",
	}
	for d, want := range tests {
		if got := duration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestLongLists(t *testing.T) {
	var s Status
	for i := range maxLines + 3 {
		s.Conflicts = append(s.Conflicts, fmt.Sprint("conflict ", i))
	}
	var b strings.Builder
	if err := s.Write(&b, time.Now()); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, "  conflict ") != maxLines || !strings.Contains(text, "and 3 more, see sluice status -o json\n") {
		t.Errorf("got\n%s", text)
	}
}
