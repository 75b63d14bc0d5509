package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/cluster"
)

// size is a number of Services and of the endpoints of each.
type size struct{ services, endpoints int }

func (s size) String() string { return fmt.Sprintf("%d × %d", s.services, s.endpoints) }

// objects are the ones in the cluster: Services web-0 and so on, each with one EndpointSlice, or with more if it has more endpoints than one can have.
type objects struct {
	cluster *cluster.Cluster
	size    size
	// made are the Services that exist.
	made int
	// moves counts the addresses that were given to endpoints anew.
	moves atomic.Uint32
}

// First addresses of the Services, of their endpoints, and of endpoints that were moved.
var (
	firstClusterIP = netip.MustParseAddr("10.96.16.1")
	firstEndpoint  = netip.MustParseAddr("10.128.0.1")
	firstMoved     = netip.MustParseAddr("10.200.0.1")
)

// clusterCIDR holds the endpoints.
const clusterCIDR = "10.128.0.0/9"

// address returns the n-th address behind the first one.
func address(first netip.Addr, n uint32) netip.Addr {
	a := first.As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+n)
	return netip.AddrFrom4(a)
}

// writers is how many requests are under way at the same time.
const writers = 32

// grow writes what is missing to a size that is not below the one before.
func (o *objects) grow(ctx context.Context, to size) error {
	o.size = to
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range to.services {
		group.Go(func() error {
			var all []cluster.Object
			if i >= o.made {
				all = append(all, service(i))
			}
			for first := 0; first < to.endpoints; first += sliceSize {
				all = append(all, o.slice(i, first, netip.Addr{}))
			}
			if i >= o.made {
				return o.cluster.Seed(limited, all...)
			}
			return o.cluster.Apply(limited, all...)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write %v: %w", to, err)
	}
	o.made = to.services
	// The server answers when it has taken up what etcd has: the first peer does not wait for that.
	for _, path := range []string{"/api/v1/services?limit=1", "/apis/discovery.k8s.io/v1/endpointslices?limit=1"} {
		if _, err := o.cluster.Do(ctx, http.MethodGet, path, nil); err != nil {
			return err
		}
	}
	return nil
}

func service(i int) *corev1.Service {
	name := fmt.Sprintf("web-%d", i)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": name}},
		Spec: corev1.ServiceSpec{
			ClusterIP: address(firstClusterIP, uint32(i)).String(),
			Selector:  map[string]string{"app.kubernetes.io/name": name},
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}

// sliceSize is how many endpoints the API server lets an EndpointSlice have (maxEndpoints of its validation).
const sliceSize = 1000

// slice has the endpoints of a Service from first on, as many as fit. The first one is at the address moved, if that is valid.
func (o *objects) slice(i, first int, moved netip.Addr) *discoveryv1.EndpointSlice {
	name := fmt.Sprintf("web-%d", i)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("%s-x7x2%c", name, 'a'+first/sliceSize), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for e := range min(o.size.endpoints-first, sliceSize) {
		n := i*o.size.endpoints + first + e
		addr := address(firstEndpoint, uint32(n))
		if e == 0 && moved.IsValid() {
			addr = moved
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{addr.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("node-%d", n%4)),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-5d4f8c7b9-%05d", name, n)},
		})
	}
	return s
}

// nextAddress is one that no endpoint had yet.
func (o *objects) nextAddress() netip.Addr { return address(firstMoved, o.moves.Add(1)) }

// move gives the first endpoint of a Service another address.
func (o *objects) move(ctx context.Context, i int, to netip.Addr) error {
	return o.cluster.Apply(ctx, o.slice(i, 0, to))
}
