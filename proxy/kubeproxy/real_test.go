package kubeproxy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
	"sluice/proxy/probe"
	"sluice/test/cluster"
	"sluice/test/kubeproxy"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// foreign are rules of others that must stay, in iptables-restore's language.
const foreign = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:FLANNEL-POSTRTG - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "not -j KUBE-SERVICES" -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 8080 -j RETURN
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
:FLANNEL-FWD - [0:0]
-A INPUT -m comment --comment "kube-router netpol" -j KUBE-ROUTER-INPUT
-A FORWARD -j FLANNEL-FWD
-A OUTPUT -j KUBE-FIREWALL
COMMIT
`

// TestRealKubeProxy lets a kube-proxy write its rules beside foreign ones, and removes them.
func TestRealKubeProxy(t *testing.T) {
	peers, err := cluster.Peers("kube-proxy", "kube-apiserver", "etcd")
	if errors.Is(err, cluster.ErrMissing) {
		t.Skip(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	c, err := cluster.New(t.Context(), cluster.Options{})
	must(err)
	t.Cleanup(func() { must(c.Close()) })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::9"}}
	must(c.Create(t.Context(), append(objects(), node)...))
	must(c.ApplyStatus(t.Context(), node)) // kube-proxy waits for the addresses

	for _, mode := range []struct{ name, mode, variant string }{
		{"nftables", "nftables", "iptables-nft"},
		{"iptables-nft", "iptables", "iptables-nft"},
		{"iptables-legacy", "iptables", "iptables-legacy"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", programs(t, mode.variant))
			node := lab.NewTestNamespace(t, "link add d0 type veth peer name d1", "addr add 192.0.2.9/24 dev d0", "addr add 2001:db8::9/64 dev d0 nodad", "link set d0 up", "link set d1 up")
			_, err := c.Join(t.Context(), node)
			must(err)
			for _, v := range probe.Variants(t.Context()) {
				for _, f := range proxy.Families {
					_, err := node.Run(t.Context(), foreign, v.Programs[f].Restore, "--noflush")
					must(err)
				}
			}
			node.Must(t, "nft", "add table ip mine; add table ip kube-proxy-not")
			before := rules(t, node)

			dir := t.TempDir()
			kubeconfig := filepath.Join(dir, "kubeconfig")
			must(os.WriteFile(kubeconfig, []byte(c.TokenKubeconfig(cluster.ProxyToken)), 0o600))
			k, err := kubeproxy.Start(node, filepath.Join(peers, "kube-proxy"), dir, kubeproxy.Config{Mode: mode.mode,
				Kubeconfig: kubeconfig, HostnameOverride: "node", ClusterCIDR: "10.244.0.0/16,fd00:244::/56"})
			must(err)
			written := func() bool {
				all := rules(t, node)
				return strings.Count(all, "default/web") > 4 && strings.Contains(all, "10.244.0.7") && strings.Contains(all, "fd00:244::7")
			}
			for end := time.Now().Add(20 * time.Second); !written(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					k.Kill()
					t.Fatalf("kube-proxy wrote no rules:\n%s\n%s", k.Output(), rules(t, node))
				}
			}
			k.Kill()

			var found, removed []Leftover
			must(node.Do(func() (err error) {
				if found, err = Find(t.Context()); err != nil {
					return err
				}
				removed, err = Cleanup(t.Context())
				return err
			}))
			if diff := cmp.Diff(found, removed); diff != "" || len(found) < 2 {
				t.Errorf("found %v, removed %v", found, removed)
			}
			for _, l := range found {
				t.Log(l)
			}
			// What is the kubelet's, too, stays.
			if diff := cmp.Diff(before, rules(t, node)); diff != "" {
				t.Errorf("after the clean-up (-before, +after):\n%s", diff)
			}
			if all := node.Must(t, "iptables-save"); !strings.Contains(all, "-A OUTPUT -j KUBE-FIREWALL") {
				t.Errorf("KUBE-FIREWALL is gone:\n%s", all)
			}
		})
	}
}

// rules lists all rules of a namespace, without counters.
func rules(t *testing.T, n *lab.Namespace) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(n.Must(t, "nft", "list", "tables")) {
		switch fields := strings.Fields(line); fields[2] {
		case TableName:
			b.WriteString(n.Must(t, "nft", "list", "table", fields[1], TableName))
		case "mine", TableName + "-not": // the others are iptables-nft's, see below
			b.WriteString(line)
		}
	}
	for _, v := range probe.Variants(t.Context()) {
		for _, f := range proxy.Families {
			for line := range strings.Lines(n.Must(t, v.Programs[f].Save)) {
				chain, _, _ := strings.Cut(line, " [")
				// kube-proxy writes the kubelet's KUBE-FIREWALL, and jumps to it, as a kubelet does.
				if strings.HasPrefix(line, "#") || strings.Contains(line, "KUBE-FIREWALL") {
					continue
				}
				b.WriteString(v.Name + " " + f.String() + " " + strings.TrimSpace(chain) + "\n")
			}
		}
	}
	return b.String()
}

// programs returns a PATH on which the plain names are those of a variant.
func programs(t *testing.T, variant string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-restore", "-save"} {
			full := name + strings.TrimPrefix(variant, "iptables") + suffix
			path, err := exec.LookPath(full)
			if err != nil {
				t.Skipf("%s is not installed here (package iptables): %v", full, err)
			}
			if err := os.Symlink(path, filepath.Join(dir, name+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir + ":" + os.Getenv("PATH")
}

// objects are a Service of every kind with an endpoint of each family.
func objects() []cluster.Object {
	dual := corev1.IPFamilyPolicyRequireDualStack
	port, name := int32(80), ""
	ready := true
	objs := []cluster.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &dual, LoadBalancerSourceRanges: []string{"10.0.0.0/8"},
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, ExternalIPs: []string{"203.0.113.7", "2001:db8:1::7"},
			Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "empty"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &dual, Ports: []corev1.ServicePort{{Port: 81}}}},
	}
	for family, addr := range map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "10.244.0.7", discoveryv1.AddressTypeIPv6: "fd00:244::7"} {
		objs = append(objs, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "web-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		})
	}
	return objs
}
