package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/cluster"
)

// The Service that is asked for, and its pod, which is a namespace of the machine.
const (
	clusterIP = "10.96.0.50"
	nodePort  = 30080
	podIP     = "10.42.0.2"
	podCIDR   = "10.42.0.0/24"
)

// others is the number of Services besides, so that the cache is that of a cluster.
const others = 100

// fill makes the objects.
func fill(ctx context.Context, c *cluster.Cluster) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}}}
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: clusterIP,
		Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}}}}
	objects := []cluster.Object{node, web, slice("web", podIP)}
	for i := range others {
		name := fmt.Sprint("other-", i)
		objects = append(objects, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, otherSlice(i))
	}
	return c.Create(ctx, objects...)
}

// slice is the EndpointSlice of a Service.
func slice(service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("node1")})
	}
	return s
}

// otherSlice has three endpoints, of which one is somewhere else each time.
func otherSlice(i int) *discoveryv1.EndpointSlice {
	return slice(fmt.Sprint("other-", i), fmt.Sprintf("10.42.1.%d", i+1), fmt.Sprintf("10.42.2.%d", i+1), fmt.Sprintf("10.42.3.%d", rand.IntN(254)+1))
}

// churn changes EndpointSlices, up to 100 a second, until the context ends.
func churn(ctx context.Context, c *cluster.Cluster) error {
	for ctx.Err() == nil {
		if err := c.Apply(ctx, otherSlice(rand.IntN(others))); err != nil && ctx.Err() == nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// kubeconfig is one by which the machine reaches the server, whose certificate is for its address on loopback.
func kubeconfig(c *cluster.Cluster) string {
	return strings.Replace(c.TokenKubeconfig(cluster.ProxyToken), `server: "https://127.0.0.1`, `tls-server-name: 127.0.0.1, server: "https://`+hostAddress, 1)
}
