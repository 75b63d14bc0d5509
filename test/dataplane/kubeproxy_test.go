package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
	"sluice/proxy"
	"sluice/test/kubeproxy"
	"sluice/test/lab"
)

// kubeProxyEnv names a kube-proxy binary, which the cases run against as well. That
// checks the cases: what they expect is what Kubernetes does.
const kubeProxyEnv = "SLUICE_KUBE_PROXY"

// kubeProxy is a subject: a real kube-proxy in its nftables mode, before an API server of the tests' own.
type kubeProxy struct {
	lab     *lab.Lab
	binary  string
	dir     string
	api     *apiServer
	config  nodeConfig
	process *kubeproxy.Process
	marks   uint16
}

func newKubeProxy(l *lab.Lab, f proxy.Family) (subject, error) {
	dir, err := os.MkdirTemp("", "kube-proxy-")
	if err != nil {
		return nil, err
	}
	k := &kubeProxy{lab: l, binary: os.Getenv(kubeProxyEnv), dir: dir}
	var listener net.Listener
	err = l.Node.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return nil, err
	}
	k.api = newAPIServer(listener)
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://%s"}}]}`, listener.Addr())
	if err := os.WriteFile(k.path("kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	return k, k.Configure(ctx, defaultConfig(l, f))
}

func (k *kubeProxy) path(name string) string { return filepath.Join(k.dir, name) }

func (k *kubeProxy) Configure(ctx context.Context, c nodeConfig) error {
	same := k.process != nil && c.Name == k.config.Name && c.MasqueradeAll == k.config.MasqueradeAll &&
		slices.Equal(c.NodePortAddrs, k.config.NodePortAddrs) && c.Detection.Mode == k.config.Detection.Mode &&
		c.Detection.Interface == k.config.Detection.Interface && slices.Equal(c.Detection.PodCIDRs, k.config.Detection.PodCIDRs)
	hadCIDRs := len(k.config.ServiceCIDRs) > 0
	k.config = c
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{}}}
	if c.Zone != "" {
		node.Labels[corev1.LabelTopologyZone] = c.Zone
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.Addrs[0].String()}}
	if c.Detection.Mode == proxy.DetectNodeCIDR {
		node.Spec.PodCIDRs = texts(c.Detection.PodCIDRs)
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	err := k.api.set(change{Kind: source.Node, Name: c.Name, Object: node})
	cidrs := change{Kind: source.ServiceCIDR, Name: "kubernetes"}
	if len(c.ServiceCIDRs) > 0 {
		cidrs.Object = &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: cidrs.Name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: texts(c.ServiceCIDRs)}}
	}
	if cidrs.Object != nil || hadCIDRs {
		err = errors.Join(err, k.api.set(cidrs))
	}
	if err != nil {
		return err
	}
	if same {
		return k.settle(ctx)
	}
	return k.Restart(ctx)
}

func texts(list []netip.Prefix) (s []string) {
	for _, p := range list {
		s = append(s, p.String())
	}
	return s
}

// translate gives kube-proxy's words for the configuration.
func (k *kubeProxy) translate() kubeproxy.Config {
	c := &k.config
	var nodePorts []string
	for _, a := range c.NodePortAddrs {
		nodePorts = append(nodePorts, netip.PrefixFrom(a, a.BitLen()).String())
	}
	if len(nodePorts) == 0 {
		nodePorts = []string{netip.PrefixFrom(lab.ExternalCIDRs[c.Family].Addr(), c.Addrs[0].BitLen()).String()} // none of the node's
	}
	mode, clusterCIDR := string(c.Detection.Mode), ""
	switch c.Detection.Mode {
	case proxy.DetectNone:
		mode = string(proxy.DetectClusterCIDR) // with no CIDR, that is no detection
	case proxy.DetectClusterCIDR:
		clusterCIDR = strings.Join(texts(c.Detection.PodCIDRs), ",")
	}
	return kubeproxy.Config{
		Kubeconfig: k.path("kubeconfig"), ContentType: "application/json", HostnameOverride: c.Name, NodePortAddresses: nodePorts,
		DetectLocalMode: mode, ClusterCIDR: clusterCIDR, Interface: c.Detection.Interface, MasqueradeAll: c.MasqueradeAll,
		MinSyncPeriod: "1ms",
	}
}

func (k *kubeProxy) Restart(ctx context.Context) (err error) {
	k.stop()
	if k.process, err = kubeproxy.Start(k.lab.Node.Namespace, k.binary, k.dir, k.translate()); err != nil {
		return err
	}
	return k.settle(ctx)
}

func (k *kubeProxy) stop() {
	if k.process != nil {
		k.process.Kill()
		k.process = nil
	}
}

func (k *kubeProxy) Set(ctx context.Context, changes []change) error {
	for _, c := range changes {
		if err := k.api.set(c); err != nil {
			return err
		}
	}
	return k.settle(ctx)
}

// settle waits until what was set is in force: it changes a Service and a slice of its own, and waits
// until both changes are in the kernel. Each kind of object comes in order.
func (k *kubeProxy) settle(ctx context.Context) error {
	k.marks++
	port := int32(10000 + k.marks)
	const name = "mark"
	vip := k.lab.Names(k.config.Family)["vip5"]
	mark := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	mark.Spec.ClusterIP = vip.String()
	mark.Spec.ClusterIPs = []string{mark.Spec.ClusterIP}
	mark.Spec.Ports = []corev1.ServicePort{{Port: port}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: name, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressType(k.config.Family.String()), Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{k.lab.Pods[0].Addr(k.config.Family).String()}}},
	}
	err := errors.Join(k.api.set(change{Kind: source.Service, Namespace: name, Name: name, Object: mark}),
		k.api.set(change{Kind: source.EndpointSlice, Namespace: name, Name: name, Object: slice}))
	if err != nil {
		return err
	}
	family := strings.Fields(nftTable(k.config.Family))[0]
	service, endpoint := fmt.Sprintf(" . %d ", port), fmt.Sprintf(":%d\n", port)
	for {
		listing, err := k.lab.Node.Run(ctx, "", "nft", "list", "table", family, kubeproxy.TableName)
		if strings.Contains(listing, service) && strings.Contains(listing, endpoint) {
			return nil
		}
		select {
		case <-k.process.Ended:
			return fmt.Errorf("kube-proxy ended:\n%s", k.process.Output())
		case <-ctx.Done():
			return fmt.Errorf("kube-proxy did not take up the changes: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (k *kubeProxy) Settled(context.Context) error { return nil }

func (k *kubeProxy) Leftovers(context.Context) ([]string, error) { return nil, nil }

func (k *kubeProxy) Close() error {
	k.stop()
	return errors.Join(k.api.http.Close(), os.RemoveAll(k.dir))
}
