package status

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"sluice/proxy"
)

// NewEndpoints lists a Service's endpoints: for every port of the Service what its
// slices have, an address and port once, as planning counts it. plans are the Service's
// plans in the families; nil ones are skipped. node is this node's name.
func NewEndpoints(svc *corev1.Service, from []*discoveryv1.EndpointSlice, node string, lost Lost, plans ...*proxy.ServicePlan) []Endpoint {
	var rows []Endpoint
	frontends, ports := byPort(plans), slicePorts(from)
	for i := range svc.Spec.Ports {
		key := portKey{svc.Spec.Ports[i].Name, cmp.Or(svc.Spec.Ports[i].Protocol, corev1.ProtocolTCP)}
		views := viewsOf(svc, lost, frontends[key])
		of := endpointsOf(ports[key], key, node)
		for j := range of {
			of[j].Namespace, of[j].Service = svc.Namespace, svc.Name
			of[j].use(views)
		}
		rows = append(rows, of...)
	}
	return rows
}

// slicePort is a port of a slice.
type slicePort struct {
	slice  *discoveryv1.EndpointSlice
	number uint16
}

// slicePorts sorts the ports of slices by name.
func slicePorts(from []*discoveryv1.EndpointSlice) map[portKey][]slicePort {
	all := map[portKey][]slicePort{}
	for _, slice := range from {
		for _, p := range slice.Ports {
			if p.Name == nil || p.Port == nil {
				continue
			}
			key := portKey{*p.Name, ptr.Deref(p.Protocol, corev1.ProtocolTCP)}
			all[key] = append(all[key], slicePort{slice, uint16(*p.Port)})
		}
	}
	return all
}

// endpointsOf lists what the slices have for one port, by address.
func endpointsOf(ports []slicePort, key portKey, node string) []Endpoint {
	var rows []Endpoint
	for _, p := range ports {
		for i := range p.slice.Endpoints {
			if row, ok := newEndpoint(&p.slice.Endpoints[i], p.number, node); ok {
				row.Port, row.Protocol = key.name, string(key.protocol)
				rows = append(rows, row)
			}
		}
	}
	// Of several copies of an address the one comes first that planning prefers, too.
	slices.SortFunc(rows, func(a, b Endpoint) int {
		return cmp.Or(a.Address.Compare(b.Address), compare(a.Terminating, b.Terminating), compare(b.Ready, a.Ready), compare(b.Serving, a.Serving))
	})
	return slices.CompactFunc(rows, func(a, b Endpoint) bool { return a.Address == b.Address })
}

func newEndpoint(e *discoveryv1.Endpoint, port uint16, node string) (row Endpoint, ok bool) {
	if len(e.Addresses) == 0 {
		return row, false
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return row, false
	}
	row = Endpoint{
		Address: netip.AddrPortFrom(addr.Unmap(), port),
		Node:    ptr.Deref(e.NodeName, ""),
		// The defaults of discovery/v1.
		Ready:       ptr.Deref(e.Conditions.Ready, true),
		Serving:     ptr.Deref(e.Conditions.Serving, true),
		Terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
	row.Local = row.Node != "" && row.Node == node
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			row.HintZones = append(row.HintZones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			row.HintNodes = append(row.HintNodes, n.Name)
		}
	}
	return row, true
}

// NewService describes a Service. endpoints are those of NewEndpoints for the same Service and plans.
func NewService(svc *corev1.Service, endpoints []Endpoint, plans ...*proxy.ServicePlan) Service {
	spec := &svc.Spec
	s := Service{
		Namespace:             svc.Namespace,
		Name:                  svc.Name,
		Type:                  string(cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)),
		ClusterIPs:            spec.ClusterIPs,
		ExternalIPs:           slices.Clone(spec.ExternalIPs),
		Ports:                 make([]ServicePort, 0, len(spec.Ports)),
		InternalTrafficPolicy: string(ptr.Deref(spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)),
		SourceRanges:          spec.LoadBalancerSourceRanges,
		HealthCheckNodePort:   spec.HealthCheckNodePort,
		Created:               svc.CreationTimestamp.Time,
	}
	if len(s.ClusterIPs) == 0 && spec.ClusterIP != "" {
		s.ClusterIPs = []string{spec.ClusterIP}
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" && ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP && !slices.Contains(s.ExternalIPs, in.IP) {
			s.ExternalIPs = append(s.ExternalIPs, in.IP)
		}
	}
	if s.Type != string(corev1.ServiceTypeClusterIP) || len(s.ExternalIPs) > 0 {
		s.ExternalTrafficPolicy = string(cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster))
	}
	for _, p := range spec.Ports {
		s.Ports = append(s.Ports, ServicePort{p.Name, string(cmp.Or(p.Protocol, corev1.ProtocolTCP)), p.Port, p.NodePort})
		if spec.Type == corev1.ServiceTypeNodePort && p.NodePort == 0 { // only a manifest can lack it
			s.NotServed = append(s.NotServed, fmt.Sprintf("port %q: it has no nodePort, and nothing allocates one here", cmp.Or(p.Name, strconv.Itoa(int(p.Port)))))
		}
	}
	told := map[string]struct{}{}
	for _, plan := range plans {
		if plan == nil {
			continue
		}
		for _, ignored := range plan.Ignored {
			if _, again := told[ignored]; !again { // often the same in both families
				s.NotServed = append(s.NotServed, ignored)
				told[ignored] = struct{}{}
			}
		}
		for _, f := range plan.Frontends {
			s.AffinitySeconds = int32(f.Route.Affinity) // one day at most
		}
	}
	s.Endpoints = countEndpoints(s.ClusterIPs, endpoints)
	return s
}

// countEndpoints counts the addresses of each family that the Service has.
func countEndpoints(clusterIPs []string, endpoints []Endpoint) []EndpointCount {
	counts := make([]EndpointCount, 0, len(clusterIPs))
	for _, ip := range clusterIPs {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			continue
		}
		c := EndpointCount{Family: proxy.FamilyOf(addr.Unmap())}
		all, ready, used := map[netip.Addr]bool{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}
		for i := range endpoints {
			e := &endpoints[i]
			if a := e.Address.Addr(); proxy.FamilyOf(a) == c.Family {
				all[a] = true
				if e.Ready {
					ready[a] = true
				}
				if e.Used != UsedNo {
					used[a] = true
				}
			}
		}
		c.Total, c.Ready, c.Used = len(all), len(ready), len(used)
		counts = append(counts, c)
	}
	return counts
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
