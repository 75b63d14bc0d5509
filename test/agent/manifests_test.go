package agent

import (
	"fmt"
	"strings"

	"sluice/proxy"
	"sluice/test/rig"
)

// serviceCIDR makes packets to ClusterIPs that no Service has vanish.
const serviceCIDR = `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, "fd00:96::/112"]}
`

// service is a Service of both families with port 80 for TCP and UDP. The lines of spec are added to its own.
func service(name, vip, spec string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  clusterIP: $%[2]s
  clusterIPs: [$%[2]s, $%[2]sv6]
  ipFamilyPolicy: RequireDualStack
%[3]s`, name, vip, spec)
}

// Lines of a spec.
const (
	ports     = "  ports: [{name: t, port: 80}, {name: u, port: 80, protocol: UDP}]\n"
	nodePorts = "  type: NodePort\n  ports: [{name: t, port: 80, nodePort: 30080}, {name: u, port: 80, nodePort: 30080, protocol: UDP}]\n"
	sticky    = "  sessionAffinity: ClientIP\n" + ports
)

// slices are the EndpointSlices of a Service, one of each family. The hosts serve at port 8080.
func endpoints(service string, hosts ...string) string {
	var all []string
	for _, f := range proxy.Families {
		var s strings.Builder
		fmt.Fprintf(&s, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]v
ports: [{name: t, port: 8080}, {name: u, port: 8080, protocol: UDP}]
endpoints:
`, service, strings.ToLower(f.String()), f)
		for _, host := range hosts {
			node := "node"
			if strings.HasPrefix(host, "far") {
				node = "node2"
			}
			fmt.Fprintf(&s, "- {addresses: [$%s%s], nodeName: %s}\n", host, rig.Suffix[f], node)
		}
		if len(hosts) == 0 {
			s.WriteString("  []\n")
		}
		all = append(all, s.String())
	}
	return strings.Join(all, "---\n")
}
