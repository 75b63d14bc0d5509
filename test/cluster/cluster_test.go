package cluster

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// TestCluster writes objects of each kind, and finds them again after the server was killed, and etcd.
func TestCluster(t *testing.T) {
	ctx := t.Context()
	c, err := New(ctx, Options{})
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack)}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.11"}}}}
	must(c.Create(ctx, svc, slice, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}))
	must(c.Apply(ctx, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}}}))
	svc.Spec.Ports[0].Port = 81
	must(c.Apply(ctx, svc))
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	must(c.ApplyStatus(ctx, svc))
	must(c.Delete(ctx, slice))
	must(c.Seed(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "seeded"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.3.3", Ports: []corev1.ServicePort{{Port: 82}}}}))

	must(c.KillServer())
	must(c.StopEtcd())
	must(c.StartEtcd())
	must(c.StartServer(ctx))
	text, err := c.Do(ctx, http.MethodGet, "/api/v1/namespaces/default/services/web", nil)
	must(err)
	for _, want := range []string{`"port":81`, `"ip":"203.0.113.7"`, `"clusterIP":"10.96.`, `"fd00:96::`} {
		if !strings.Contains(text, want) {
			t.Errorf("the Service has no %s: %s", want, text)
		}
	}
	text, err = c.Do(ctx, http.MethodGet, "/api/v1/namespaces/default/services/seeded", nil)
	must(err)
	if !strings.Contains(text, `"clusterIP":"10.96.3.3"`) || !strings.Contains(text, `"port":82`) || !strings.Contains(text, `"type":"ClusterIP"`) {
		t.Errorf("the Service that was put into etcd: %s", text)
	}
	var status404 *StatusError
	if _, err := c.Do(ctx, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1", nil); !errors.As(err, &status404) || status404.Code != http.StatusNotFound {
		t.Errorf("a slice that was deleted: %v", err)
	}

	node, err := lab.NewNamespace("node")
	must(err)
	defer node.Close()
	link, err := c.Join(ctx, node)
	must(err)
	ping := func() error {
		return node.Do(func() error {
			conn, err := net.DialTimeout("tcp", c.bind.String(), 2*time.Second)
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	must(ping())
	must(link.Cut(ctx))
	if ping() == nil {
		t.Error("a link that is cut still works")
	}
	must(link.Mend(ctx))
	must(ping())
}
