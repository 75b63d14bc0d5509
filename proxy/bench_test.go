package proxy

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// bigService is one of many Services of one port, with 10 endpoints from pod on.
func bigService(f Family, number, pod int) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	svc, slice := testService(f), testSlice(f, "a", "pod1 pod2 pod3 pod4 pod5 pod6 pod7 pod8 pod9 pod10")
	svc.Name = fmt.Sprint("web", number)
	slice.Labels[discoveryv1.LabelServiceName] = svc.Name
	svc.Spec.ClusterIPs[0] = nth(f, "cluster1", number).String()
	for i := range slice.Endpoints {
		slice.Endpoints[i].Addresses[0] = nth(f, "pod1", pod+i).String()
	}
	return svc, []*discoveryv1.EndpointSlice{slice}
}

// nth is the address n after another.
func nth(f Family, name string, n int) netip.Addr {
	b := ipAddr(f, name).AsSlice()
	for i := len(b) - 1; n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func BenchmarkPlanService(b *testing.B) {
	for _, f := range Families {
		b.Run(f.String(), func(b *testing.B) {
			n := testNode(f)
			svc, slices := bigService(f, 1, 1)
			s := NewState(f, Settings{})
			plan := PlanService(n, svc, slices, nil)
			s.Set(plan.Name, plan)
			b.ReportAllocs()
			for b.Loop() {
				PlanService(n, svc, slices, s.Slots)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkSet replaces one endpoint of one of 10,000 Services of 10 endpoints:
// it plans the Service and puts the plan into the state. It also tells what the state keeps for a Service.
func BenchmarkSet(b *testing.B) {
	for _, f := range Families {
		b.Run(f.String(), func(b *testing.B) {
			const services = 10000
			n := testNode(f)
			before := heap()
			s := NewState(f, Settings{})
			for i := range services {
				svc, slices := bigService(f, i, 10*i)
				plan := PlanService(n, svc, slices, nil)
				s.Set(plan.Name, plan)
			}
			kept := heap() - before
			svc, slices := bigService(f, services/2, 10*services/2)
			other := []*discoveryv1.EndpointSlice{slices[0].DeepCopy()}
			other[0].Endpoints[4].Addresses[0] = nth(f, "pod1", 20*services).String()
			name := ServiceName{svc.Namespace, svc.Name}
			b.ReportAllocs()
			for b.Loop() {
				slices, other = other, slices
				if d := s.Set(name, PlanService(n, svc, slices, s.Slots)); len(d.Frontends) != 1 {
					b.Fatalf("%d frontends changed, want 1", len(d.Frontends))
				}
			}
			b.ReportMetric(float64(kept)/services, "B/service-kept")
			runtime.KeepAlive(s)
		})
	}
}
