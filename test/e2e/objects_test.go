package e2e

import (
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy"
	"sluice/test/cluster"
	"sluice/test/rig"
)

// writeKubeconfig writes the kubeconfig in place, as k3s does.
func (e *env) writeKubeconfig(text string) {
	e.T.Helper()
	e.must(os.WriteFile(e.Kubeconfig, []byte(text), 0o600))
}

// service is a Service of both families with port 80 for TCP and UDP.
func (e *env) service(name, vip string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	v4, v6 := e.Names[vip].String(), e.Names[vip+rig.Suffix[proxy.IPv6]].String()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: v4, ClusterIPs: []string{v4, v6}, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
		Ports: []corev1.ServicePort{{Name: "t", Port: 80}, {Name: "u", Port: 80, Protocol: corev1.ProtocolUDP}},
	}}
	for _, c := range change {
		c(&svc.Spec)
	}
	return svc
}

// nodePort gives both ports of a Service a NodePort.
func nodePort(number int32) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		for i := range s.Ports {
			s.Ports[i].NodePort = number
		}
	}
}

// slices are the EndpointSlices of a Service, one of each family. The hosts serve at port 8080.
func (e *env) slices(service string, hosts ...string) (all []cluster.Object) {
	for _, f := range proxy.Families {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: service + "-" + strings.ToLower(f.String()), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressType(f.String()), Endpoints: []discoveryv1.Endpoint{},
			Ports: []discoveryv1.EndpointPort{
				{Name: new("t"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
				{Name: new("u"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolUDP)},
			},
		}
		for _, host := range hosts {
			node := "node"
			if strings.HasPrefix(host, "far") {
				node = "node2"
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{e.Names[host+rig.Suffix[f]].String()}, NodeName: &node})
		}
		all = append(all, slice)
	}
	return all
}
