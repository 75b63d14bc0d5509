package files

import (
	"hash/maphash"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// service returns a Service document with lines in its spec. clusterIP and ports have defaults.
func service(spec string) string {
	if !strings.Contains(spec, "clusterIP") {
		spec += "\nclusterIP: 10.43.0.10"
	}
	if !strings.Contains(spec, "ports:") {
		spec += "\nports: [{port: 80}]"
	}
	return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:" + strings.ReplaceAll("\n"+strings.Trim(spec, "\n"), "\n", "\n  ") + "\n"
}

func slice(fields string) string {
	return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" + fields
}

// testDecode returns everything that is wrong with a document.
func testDecode(text string, isJSON bool) []string {
	d := decoder{seed: maphash.MakeSeed()}
	doc := d.decode([]byte(text), isJSON)
	var wrong []string
	if doc.refused != "" {
		wrong = append(wrong, doc.refused)
	}
	for _, k := range doc.ignored {
		wrong = append(wrong, "ignored: "+k)
	}
	for i := range doc.objects {
		o := &doc.objects[i]
		wrong = append(wrong, o.refused...)
		for _, u := range o.unserved {
			wrong = append(wrong, "unserved: "+u)
		}
		for _, n := range o.notes {
			wrong = append(wrong, "note: "+n)
		}
	}
	return wrong
}

func TestBadDocuments(t *testing.T) {
	dns1123Label := "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
	const protocols = `supported values: "TCP", "UDP", "SCTP"`
	tests := []struct {
		name string
		text string
		want []string
	}{
		// What is no object.
		{"a scalar", "hello", []string{"the document is not a mapping: an object with apiVersion, kind and metadata is wanted"}},
		{"a list", "- a\n- b", []string{"the document is not a mapping: an object with apiVersion, kind and metadata is wanted"}},
		{"some other YAML", "services: {web: {image: nginx}}", []string{"kind: Required value: say what the object is, for example Service"}},
		{"broken YAML", "kind: Service\nmetadata:\n  name: web\n spec: x", []string{"line 3: did not find expected key"}},
		{"control characters", "kind: \x01\x02", []string{"control characters are not allowed"}},
		{"a tab", "kind: Service\n\tmetadata: {}", []string{"line 2: found a tab character that violates indentation"}},
		{"an unknown alias", "kind: *x", []string{"unknown anchor 'x' referenced"}},
		{"a list as a key", "? [a]\n: b", []string{"the key [a] of a mapping is not a string"}},
		{"infinity", service("ports: [{port: .inf}]"), []string{"the number +Inf has no place in a Kubernetes object"}},
		{"another kind", "apiVersion: v1\nkind: ConfigMap", []string{"ignored: ConfigMap (v1)"}},
		{"another group's Service", "apiVersion: serving.knative.dev/v1\nkind: Service", []string{"ignored: Service (serving.knative.dev/v1)"}},
		{"another version", "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: x}",
			[]string{`apiVersion: Unsupported value: "discovery.k8s.io/v1beta1": supported values: "discovery.k8s.io/v1"`}},
		{"no version", "kind: EndpointSlice\nmetadata: {name: x}", []string{"apiVersion: Required value: of a EndpointSlice it is discovery.k8s.io/v1"}},

		// Wrong types and unknown fields.
		{"unknown field", service("ports: [{port: 80, nodeprt: 1}]"), []string{`unknown field "spec.ports[0].nodeprt"`}},
		{"wrong case", service("clusterip: 10.43.0.1"), []string{`unknown field "spec.clusterip"`}},
		{"duplicate field", service("type: ClusterIP\ntype: ClusterIP"), []string{`duplicate field "spec.type"`}},
		{"string for a number", service("ports: [{port: 80}, {port: eighty}]"), []string{`spec.ports[1].port: Invalid value: "eighty": must be an integer (int32)`}},
		{"number too big", service("ports: [{port: 3000000000}]"), []string{`spec.ports[0].port: Invalid value: 3000000000: must be an integer (int32)`}},
		{"fraction", service("ports: [{port: 80.5}]"), []string{`spec.ports[0].port: Invalid value: 80.5: must be an integer (int32)`}},
		{"number for a string", service("clusterIP: 10"), []string{`spec.clusterIP: Invalid value: 10: must be a string (put it in quotes)`}},
		{"list for a string", service("clusterIP: [a]"), []string{`spec.clusterIP: Invalid value: [: must be a string`}},
		{"string for a list", service("ports: http"), []string{`spec.ports: Invalid value: "http": must be a list`}},
		{"string for a mapping", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: 5", []string{`spec: Invalid value: 5: must be a mapping`}},
		{"string for a truth value", slice("addressType: IPv4\nendpoints: [{addresses: [10.42.0.1], conditions: {ready: maybe}}]"),
			[]string{`endpoints[0].conditions.ready: Invalid value: "maybe": must be true or false`}},
		{"number for a label", "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {version: 1.5}}\nspec: {}", []string{`metadata.labels.version: Invalid value: 1.5: must be a string (put it in quotes)`}},
		{"number for the kind", "apiVersion: v1\nkind: 5", []string{`kind: Invalid value: 5: must be a string (put it in quotes)`}},
		{"number for the name", "apiVersion: v1\nkind: Service\nmetadata: {name: 5}\nspec: {}", []string{`metadata.name: Invalid value: 5: must be a string (put it in quotes)`}},
		{"mapping for the metadata", "apiVersion: v1\nkind: Service\nmetadata: [5]\nspec: {}", []string{`metadata: Invalid value: [: must be a mapping`}},
		{"no time", "apiVersion: v1\nkind: Service\nmetadata: {name: web, creationTimestamp: yesterday}\nspec: {}",
			[]string{`metadata.creationTimestamp: Invalid value: "yesterday": must be a time such as "2026-01-31T12:00:00Z"`}},
		{"no target port", service("ports: [{port: 80, targetPort: 1.5}]"), []string{`spec.ports[0].targetPort: Invalid value: 1.5: must be a port number or a port's name`}},

		// Names.
		{"no name", "apiVersion: v1\nkind: Service\nspec: {clusterIP: None}", []string{"metadata.name: Required value: give the object a name"}},
		{"bad name", "apiVersion: v1\nkind: Service\nmetadata: {name: My_Web}\nspec: {clusterIP: None}", []string{`metadata.name: Invalid value: "My_Web": ` + dns1123Label}},
		{"bad namespace", "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: A}\nspec: {clusterIP: None}", []string{`metadata.namespace: Invalid value: "A": ` + dns1123Label}},
		{"a Node in a namespace", "apiVersion: v1\nkind: Node\nmetadata: {name: node, namespace: default}", []string{"metadata.namespace: Forbidden: not allowed on this type"}},

		// Services: ports.
		{"no ports", service("ports: []"), []string{"spec.ports: Required value: a Service needs at least one port"}},
		{"port 0", service("ports: [{port: 0}]"), []string{"spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		{"port 70000", service("ports: [{port: 70000}]"), []string{"spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"}},
		{"bad protocol", service("ports: [{port: 80, protocol: tcp}]"), []string{`spec.ports[0].protocol: Unsupported value: "tcp": ` + protocols}},
		{"unnamed ports", service("ports: [{port: 80, name: a}, {port: 81}]"), []string{"spec.ports[1].name: Required value: where there are several ports each needs a name"}},
		{"same port name", service("ports: [{port: 80, name: a}, {port: 81, name: a}]"), []string{`spec.ports[1].name: Duplicate value: "a"`}},
		{"bad port name", service("ports: [{port: 80, name: a_b}]"), []string{`spec.ports[0].name: Invalid value: "a_b": ` + dns1123Label}},
		{"same port", service("ports: [{port: 80, name: a}, {port: 80, name: b}]"), []string{`spec.ports[1]: Duplicate value: "TCP 80"`}},
		{"same port, other protocol", service("ports: [{port: 53, name: a}, {port: 53, name: b, protocol: UDP}]"), nil},
		{"nodePort 70000", service("type: NodePort\nports: [{port: 80, nodePort: 70000}]"), []string{"spec.ports[0].nodePort: Invalid value: 70000: must be between 1 and 65535, inclusive"}},
		{"nodePort -1", service("type: NodePort\nports: [{port: 80, nodePort: -1}]"), []string{"spec.ports[0].nodePort: Invalid value: -1: must be between 1 and 65535, inclusive"}},
		{"nodePort 0", service("type: NodePort\nports: [{port: 80, nodePort: 0}]"),
			[]string{"unserved: spec.ports[0].nodePort: Required value: nothing allocates node ports here, so this port has none; give it a free one (usually 30000-32767)"}},
		{"same nodePort", service("type: NodePort\nports: [{port: 80, name: a, nodePort: 30000}, {port: 81, name: b, nodePort: 30000}]"),
			[]string{"spec.ports[1].nodePort: Duplicate value: 30000"}},
		{"nodePort of a ClusterIP", service("ports: [{port: 80, nodePort: 30000}]"), []string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},

		// Services: addresses.
		{"no clusterIP", service("clusterIPs: []"), []string{"spec.clusterIP: Required value: nothing allocates addresses here: give an unused one (for example 10.43.0.10), or None for a headless Service"}},
		{"no address", service("clusterIP: web"), []string{`spec.clusterIPs[0]: Invalid value: "web": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{"leading zeros", service("clusterIP: 010.43.0.1"), []string{`spec.clusterIPs[0]: Invalid value: "010.43.0.1": must not have leading 0s`}},
		{"mapped", service(`clusterIP: "::ffff:10.43.0.1"`), []string{`spec.clusterIPs[0]: Invalid value: "::ffff:10.43.0.1": must not be an IPv4-mapped IPv6 address`}},
		{"a zone", service(`clusterIP: "fd00::1%eth0"`), []string{`spec.clusterIPs[0]: Invalid value: "fd00::1%eth0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{"0.0.0.0", service("clusterIP: 0.0.0.0"), []string{`spec.clusterIPs[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`}},
		{"::", service(`clusterIP: "::"`), []string{`spec.clusterIPs[0]: Invalid value: "::": may not be unspecified (::)`}},
		{"127.0.0.1", service("clusterIP: 127.0.0.1"), []string{`spec.clusterIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"::1", service(`clusterIP: "::1"`), []string{`spec.clusterIPs[0]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"link-local", service("externalIPs: [169.254.0.1]"), []string{`spec.externalIPs[0]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`}},
		{"multicast", service("externalIPs: [239.0.0.1]"), []string{`spec.externalIPs[0]: Invalid value: "239.0.0.1": may not be in the multicast range (224.0.0.0/4, ff00::/8)`}},
		{"broadcast", service("externalIPs: [255.255.255.255]"), []string{`spec.externalIPs[0]: Invalid value: "255.255.255.255": may not be the broadcast address`}},
		{"clusterIPs alone", service("clusterIPs: [10.43.0.1]"), []string{"spec.clusterIPs: Invalid value: [\"10.43.0.1\"]: must be empty when `clusterIP` is not specified"}},
		{"clusterIPs differ", service("clusterIP: 10.43.0.1\nclusterIPs: [10.43.0.2]"), []string{"spec.clusterIPs: Invalid value: [\"10.43.0.2\"]: first value must match `clusterIP`"}},
		{"three clusterIPs", service("clusterIP: 10.43.0.1\nclusterIPs: [10.43.0.1, 'fd00::1', 10.43.0.2]"), []string{`spec.clusterIPs: Invalid value: ["10.43.0.1","fd00::1","10.43.0.2"]: may only hold up to 2 values`}},
		{"one family twice", service("clusterIP: 10.43.0.1\nclusterIPs: [10.43.0.1, 10.43.0.2]\nipFamilyPolicy: PreferDualStack"),
			[]string{`spec.clusterIPs: Invalid value: ["10.43.0.1","10.43.0.2"]: may specify no more than one IP for each IP family`}},
		{"family differs", service("clusterIP: 10.43.0.1\nipFamilies: [IPv6]"), []string{"spec.clusterIPs[0]: Invalid value: \"10.43.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"}},
		{"unknown family", service("ipFamilies: [IPv5]"), []string{`spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`}},
		{"two stacks by one policy", service("clusterIP: 10.43.0.1\nclusterIPs: [10.43.0.1, 'fd00::1']"),
			[]string{`spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified`}},
		{"two stacks", service("clusterIP: 10.43.0.1\nclusterIPs: [10.43.0.1, 'fd00::1']\nipFamilyPolicy: RequireDualStack"), nil},
		{"second address missing", service("ipFamilyPolicy: RequireDualStack"),
			[]string{"unserved: spec.clusterIPs[1]: Required value: nothing allocates addresses here, so the Service has no IPv6 address; add one"}},
		{"unknown policy", service("ipFamilyPolicy: Dual"), []string{`spec.ipFamilyPolicy: Unsupported value: "Dual": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`}},
		{"headless", service("clusterIP: None"), nil},
		{"headless NodePort", service("clusterIP: None\ntype: NodePort\nports: [{port: 80, nodePort: 30000}]"), []string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`}},
		{"source range", service("type: LoadBalancer\nloadBalancerSourceRanges: [' 192.0.2.0/24 ', 192.0.2.1/24]"),
			[]string{`spec.loadBalancerSourceRanges[1]: Invalid value: "192.0.2.1/24": must not have bits set beyond the prefix length`}},
		{"source range of a ClusterIP", service("loadBalancerSourceRanges: [192.0.2.0/24]"), []string{"spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"ingress", service("type: LoadBalancer") + "status: {loadBalancer: {ingress: [{ip: 127.0.0.1}, {ip: 192.0.2.1, ipMode: vip}, {hostname: a, ipMode: VIP}]}}", []string{
			`status.loadBalancer.ingress[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			`status.loadBalancer.ingress[1].ipMode: Unsupported value: "vip": supported values: "Proxy", "VIP"`,
			"status.loadBalancer.ingress[2].ipMode: Forbidden: may not be specified when `ip` is not set"}},
		{"ingress of a ClusterIP", service("") + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}", []string{"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}},
		{"ExternalName", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: ExternalName, externalName: example.org}", nil},
		{"ExternalName without a name", service("type: ExternalName"), []string{
			"spec.clusterIPs: Forbidden: may not be set for ExternalName services",
			"spec.externalName: Required value: the DNS name that the Service stands for"}},

		// Services: values.
		{"type", service("type: Nodeport"), []string{`spec.type: Unsupported value: "Nodeport": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`}},
		{"affinity", service("sessionAffinity: Cookie"), []string{`spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"`}},
		{"timeout 0", service("sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}"),
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and at most 86400"}},
		{"timeout of two days", service("sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 172800}}"),
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 172800: must be greater than 0 and at most 86400"}},
		{"external policy", service("type: NodePort\nports: [{port: 80, nodePort: 30000}]\nexternalTrafficPolicy: local"),
			[]string{`spec.externalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"`}},
		{"external policy of a ClusterIP", service("externalTrafficPolicy: Local"), []string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
		{"internal policy", service("internalTrafficPolicy: Node"), []string{`spec.internalTrafficPolicy: Unsupported value: "Node": supported values: "Cluster", "Local"`}},
		{"health check", service("type: LoadBalancer\nexternalTrafficPolicy: Local\nhealthCheckNodePort: 65536"), []string{"spec.healthCheckNodePort: Invalid value: 65536: must be between 1 and 65535, inclusive"}},
		{"health check of a ClusterIP", service("healthCheckNodePort: 32000"),
			[]string{"spec.healthCheckNodePort: Invalid value: 32000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"}},
		{"no health check", service("type: LoadBalancer\nexternalTrafficPolicy: Local"),
			[]string{"note: spec.healthCheckNodePort: not set, and nothing allocates one here: the Service has no health check for load balancers"}},

		// EndpointSlices.
		{"no address type", slice(""), []string{"addressType: Required value: IPv4 or IPv6"}},
		{"unknown address type", slice("addressType: ipv4"), []string{`addressType: Unsupported value: "ipv4": supported values: "FQDN", "IPv4", "IPv6"`}},
		{"IPv6 in IPv4", slice("addressType: IPv4\nendpoints: [{addresses: [10.42.0.1]}, {addresses: ['fd00::1']}]"), []string{`endpoints[1].addresses[0]: Invalid value: "fd00::1": must be an IPv4 address`}},
		{"IPv4 in IPv6", slice("addressType: IPv6\nendpoints: [{addresses: [10.42.0.1]}]"), []string{`endpoints[0].addresses[0]: Invalid value: "10.42.0.1": must be an IPv6 address`}},
		{"not canonical", slice("addressType: IPv6\nendpoints: [{addresses: ['FD00::0:1']}]"), []string{`endpoints[0].addresses[0]: Invalid value: "FD00::0:1": must be in canonical form ("fd00::1")`}},
		{"loopback endpoint", slice("addressType: IPv4\nendpoints: [{addresses: [127.0.0.1]}]"), []string{`endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"no addresses", slice("addressType: IPv4\nendpoints: [{addresses: []}]"), []string{"endpoints[0].addresses: Required value: must contain at least 1 address"}},
		{"101 addresses", slice("addressType: IPv4\nendpoints: [{addresses: [" + strings.Repeat("10.42.0.1,", 101) + "]}]"), []string{"endpoints[0].addresses: Too many: 101: must have at most 100 items"}},
		{"slice port", slice("addressType: IPv4\nports: [{port: 70000}, {name: A, port: 1}, {name: A}]"), []string{
			"ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
			`ports[1].name: Invalid value: "A": ` + dns1123Label,
			`ports[2].name: Duplicate value: "A"`,
			`ports[2].name: Invalid value: "A": ` + dns1123Label}},
		{"slice protocol", slice("addressType: IPv4\nports: [{port: 1, protocol: ICMP}]"), []string{`ports[0].protocol: Unsupported value: "ICMP": ` + protocols}},
		{"hints", slice("addressType: IPv4\nendpoints: [{addresses: [10.42.0.1], hints: {forZones: [{name: 'a b'}]}}]"), []string{
			`endpoints[0].hints.forZones[0].name: Invalid value: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		{"no Service", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: x}\naddressType: IPv4",
			[]string{"unserved: metadata.labels[kubernetes.io/service-name]: Required value: it names the Service that the endpoints belong to; without it they are not used"}},
		{"1001 endpoints", slice("addressType: IPv4\nendpoints:\n" + strings.Repeat("- {addresses: [10.42.0.1]}\n", 1001)),
			[]string{"note: endpoints: 1001 endpoints in one EndpointSlice; an API server would take 1000 at most"}},

		// Nodes and ServiceCIDRs.
		{"podCIDRs", "apiVersion: v1\nkind: Node\nmetadata: {name: node}\nspec: {podCIDRs: [10.42.0.0/24, 10.42.1.0/24, x]}", []string{
			`spec.podCIDRs[2]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			`spec.podCIDRs: Invalid value: ["10.42.0.0/24","10.42.1.0/24","x"]: may specify no more than one CIDR for each IP family`}},
		{"podCIDR differs", "apiVersion: v1\nkind: Node\nmetadata: {name: node}\nspec: {podCIDR: 10.42.1.0/24, podCIDRs: [10.42.0.0/24]}", []string{
			"spec.podCIDR: Invalid value: \"10.42.1.0/24\": must be the first of `podCIDRs`"}},
		{"node address", "apiVersion: v1\nkind: Node\nmetadata: {name: node}\nstatus: {addresses: [{type: Hostname, address: node}, {type: InternalIP, address: node}]}", []string{
			`status.addresses[1].address: Invalid value: "node": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{"no cidrs", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {}", []string{"spec.cidrs: Required value: at least one CIDR required"}},
		{"two IPv4 cidrs", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.43.0.0/16, 10.44.0.1/16]}", []string{
			`spec.cidrs[1]: Invalid value: "10.44.0.1/16": must not have bits set beyond the prefix length`,
			`spec.cidrs: Invalid value: ["10.43.0.0/16","10.44.0.1/16"]: may specify no more than one CIDR for each IP family`}},

		// Lists.
		{"list items", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  spec: {clusterIP: x, ports: [{port: 80}]}\n- 5\n- {apiVersion: v1, kind: Pod}", []string{
			"ignored: Pod (v1)",
			`items[0]: spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			"items[1]: the document is not a mapping: an object with apiVersion, kind and metadata is wanted"}},
		{"list of one kind", "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: a}\n  spec: {clusterIP: None, x: 1}", []string{`items[0]: unknown field "spec.x"`}},
		{"items is no list", "apiVersion: v1\nkind: List\nitems: 5", []string{`items: Invalid value: 5: must be a list`}},
		{"list of another kind", "apiVersion: v1\nkind: PodList\nitems: []", []string{"ignored: PodList (v1)"}},
		{"fine", service("") + "---", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, testDecode(tt.text, false)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
