package proxy

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// flowState has a Service of the ports 80/UDP, 80/TCP and 80/SCTP, and a split route at ext1.
func flowState(f Family, endpoints string) *State {
	s := NewState(f, Settings{ServiceCIDRs: prefixes(IPv4, "10.96.0.0/16")})
	if f == IPv6 {
		s.SetSettings(Settings{ServiceCIDRs: prefixes(IPv6, "fd00:96::/112")})
	}
	svc, slice := splitService(f), testSlice(f, "a", endpoints)
	svc.Spec.Ports = nil
	slice.Ports = nil
	for _, p := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP, corev1.ProtocolSCTP} {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: string(p), Protocol: p, Port: 80})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(string(p)), Protocol: &p, Port: new(int32(8080))})
	}
	plan := PlanService(testNode(f), svc, []*discoveryv1.EndpointSlice{slice}, nil)
	s.Set(plan.Name, plan)
	return s
}

func TestStaleFlow(t *testing.T) {
	const unreplied = true
	for _, tc := range []struct {
		name          string
		endpoints     string
		protocol      Protocol
		dst, replySrc string
		unreplied     bool
		removed       string
		want          bool
	}{
		{"to an endpoint", "pod1", UDP, "cluster1:80", "pod1:8080", false, "", false},
		{"to an endpoint that is gone", "pod1", UDP, "cluster1:80", "pod2:8080", false, "", true},
		{"to an endpoint that is gone, not answered", "pod1", UDP, "cluster1:80", "pod2:8080", unreplied, "", true},
		{"to another port of an endpoint", "pod1", UDP, "cluster1:80", "pod1:8081", false, "", true},
		{"to an endpoint of the local pool only", "pod1@here,draining pod2", UDP, "ext1:80", "pod1:8080", false, "", false},
		{"to one that drains", "pod1,draining pod2", UDP, "cluster1:80", "pod1:8080", false, "", false},
		{"to one in another zone", "pod1,zone=zone-a pod2,zone=zone-b", UDP, "cluster1:80", "pod2:8080", false, "", false},
		{"to one that serves no more", "pod1,notready,notserving pod2", UDP, "cluster1:80", "pod1:8080", false, "", true},
		{"all endpoints are gone", "", UDP, "cluster1:80", "pod1:8080", false, "", true},
		{"not translated, no endpoints", "", UDP, "cluster1:80", "cluster1:80", unreplied, "", false},
		{"not translated, now endpoints", "pod1", UDP, "cluster1:80", "cluster1:80", unreplied, "", true},
		{"not translated, only one that drains elsewhere", "pod1,notready,serving", UDP, "ext1:80", "ext1:80", unreplied, "", false},
		{"not translated, now local endpoints", "pod1@here", UDP, "ext1:80", "ext1:80", unreplied, "", true},

		{"frontend removed", "pod1", UDP, "ext2:80", "pod1:8080", false, "ext2", true},
		{"frontend removed, not translated", "pod1", UDP, "ext2:80", "ext2:80", false, "ext2", false},
		{"frontend removed and there again", "pod1", UDP, "ext1:80", "pod1:8080", false, "ext1", false},
		{"another port of a removed frontend", "pod1", UDP, "ext2:81", "pod1:8080", false, "ext2", false},
		{"unknown ClusterIP", "pod1", UDP, "cluster2:80", "pod1:8080", false, "", true},
		{"unknown port of a ClusterIP", "pod1", UDP, "cluster1:81", "pod1:8080", false, "", true},
		{"unknown ClusterIP, not translated", "pod1", UDP, "cluster2:80", "cluster2:80", false, "", false},
		{"somebody else's translation", "pod1", UDP, "node1:80", "pod1:8080", false, "", false},

		{"TCP to an endpoint that is gone, answered", "pod1", TCP, "cluster1:80", "pod2:8080", false, "", false},
		{"TCP to an endpoint that is gone, not answered", "pod1", TCP, "cluster1:80", "pod2:8080", unreplied, "", true},
		{"TCP to an endpoint, not answered", "pod1", TCP, "cluster1:80", "pod1:8080", unreplied, "", false},
		{"TCP, frontend removed, answered", "pod1", TCP, "ext2:80", "pod1:8080", false, "ext2", false},
		{"TCP, frontend removed, not answered", "pod1", TCP, "ext2:80", "pod1:8080", unreplied, "ext2", true},
		{"TCP from before there were endpoints", "pod1", TCP, "cluster1:80", "cluster1:80", unreplied, "", true},
		{"SCTP to an endpoint that is gone", "pod1", SCTP, "cluster1:80", "pod2:8080", unreplied, "", false},
		{"ICMP", "pod1", 1, "cluster1:80", "pod2:8080", unreplied, "", false},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				var removed map[Frontend]struct{}
				if tc.removed != "" {
					removed = map[Frontend]struct{}{{ipAddr(f, tc.removed), 80, tc.protocol}: {}}
				}
				flow := Flow{tc.protocol, at(f, tc.dst), at(f, tc.replySrc), tc.unreplied}
				if got := flowState(f, tc.endpoints).StaleFlow(flow, removed); got != tc.want {
					t.Errorf("stale is %v, want %v", got, tc.want)
				}
			})
		}
	}
}

func TestNeedsFlowCheck(t *testing.T) {
	for _, tc := range []struct {
		protocol Protocol
		change   string
		want     bool
	}{
		{UDP, "ext1 pod1:80 => none", true},
		{UDP, "ext1 none => pod1:80", true},
		{UDP, "ext1 , => pod1:80", true},
		{UDP, "ext1 none => ,", false},
		{UDP, "ext1 pod1:80 => pod1:80,pod2:80", false},
		{UDP, "ext1 pod1:80,pod2:80 => pod2:80,pod1:80", false},
		{UDP, "ext1 pod1:80,pod2:80 => pod2:80", true},
		{UDP, "ext1 pod1:80 => pod2:80", true},
		{TCP, "ext1 pod1:80 => none", true},
		{TCP, "ext1 pod1:80 => pod2:80", true},
		{TCP, "ext1 , => pod1:80", false},
		{TCP, "ext1 none => pod1:80", false},
		{SCTP, "ext1 pod1:80 => none", false},
		{SCTP, "ext1 pod1:80 => pod2:80", false},
	} {
		for _, f := range Families {
			c := frontendChange(f, tc.change)
			c.Protocol = tc.protocol
			d := Delta{Frontends: []FrontendChange{c}}
			if got := d.NeedsFlowCheck(); got != tc.want {
				t.Errorf("%v %s, %v: %v, want %v", tc.protocol, tc.change, f, got, tc.want)
			}
			_, gone := d.RemovedFrontends()[c.Frontend]
			if gone != (c.New == nil) {
				t.Errorf("%v %s, %v: among the removed frontends: %v", tc.protocol, tc.change, f, gone)
			}
		}
	}
}

// An endpoint that moves between the pools and what else serves is not lost.
func TestNeedsFlowCheckLooksInAllPlaces(t *testing.T) {
	pool := &Pool{Slots: ats(IPv4, "pod1:80")}
	places := []*Route{
		{Pool: pool},
		{Pool: &Pool{}, LocalPool: pool},
		{Pool: &Pool{}, Others: pool.Slots},
	}
	for i, from := range places {
		for j, to := range places {
			d := Delta{Frontends: []FrontendChange{{Frontend{Protocol: TCP}, from, to}}}
			if d.NeedsFlowCheck() {
				t.Errorf("from place %d to place %d: counts as lost", i, j)
			}
		}
		d := Delta{Frontends: []FrontendChange{{Frontend{Protocol: TCP}, from, &Route{Pool: &Pool{}}}}}
		if !d.NeedsFlowCheck() {
			t.Errorf("lost from place %d: no check", i)
		}
	}
}
