package e2e

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/test/cluster"
	"sluice/test/rig"
)

// steering is a text with which an object could write a line of its own, and steer a terminal.
const steering = "x\nlevel=ERROR\r\x1b[2Jy\x00"

// testAbsurd sends objects with what no server lets through. What can be served of them is, and the others are told.
func testAbsurd(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	ports := func(numbers ...int32) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) {
			for i, n := range numbers {
				s.Ports = append(s.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: n})
			}
		}
	}
	at := func(t metav1.Time) func(cluster.Object) {
		return func(obj cluster.Object) { obj.SetCreationTimestamp(t) }
	}
	named := func(namespace, name string) func(cluster.Object) {
		return func(obj cluster.Object) { obj.SetNamespace(namespace); obj.SetName(name) }
	}
	labelled := func(value string) func(cluster.Object) {
		return func(obj cluster.Object) { obj.SetLabels(map[string]string{discoveryv1.LabelServiceName: value}) }
	}
	many := func(n int) (numbers []int32) {
		for i := range n {
			numbers = append(numbers, int32(1000+i))
		}
		return numbers
	}
	slice := func(change func(*discoveryv1.EndpointSlice)) cluster.Object {
		s := e.slices("odd", "pod3")[0].(*discoveryv1.EndpointSlice)
		change(s)
		return s
	}
	addresses := make([]string, 10_000)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.244.%d.%d", 20+i/200, 1+i%200)
	}
	good := e.slices("odd", "pod3")
	for _, test := range []struct {
		name    string
		objects []cluster.Object
		change  func(cluster.Object)
		says    string // in the log
	}{
		{"ports without sense", []cluster.Object{e.service("odd", "vip3", ports(0, 70_000, -1, 65_536, -2_147_483_648))}, nil, "part of a Service is not served"},
		{"10,000 ports", []cluster.Object{e.service("odd", "vip3", ports(many(10_000)...))}, nil, ""},
		{"of the year 0", []cluster.Object{e.service("odd", "vip3")}, at(metav1.Unix(-62_167_219_200, 0)), ""},
		{"of the year 10000", []cluster.Object{e.service("odd", "vip3")}, at(metav1.Unix(253_402_300_800, 0)), ""},
		{"of no year", []cluster.Object{e.service("odd", "vip3")}, at(metav1.Unix(1<<62, 0)), ""},
		{"a name with a newline", []cluster.Object{e.service("odd", "vip4")}, named("default", "odd\nlevel=ERROR"), "Kubernetes allows no such name"},
		{"a name that is not UTF-8", []cluster.Object{e.service("odd", "vip4")}, named("default", "odd\xff\xfe"), "Kubernetes allows no such name"},
		{"of no year, long ago", []cluster.Object{e.service("odd", "vip3")}, at(metav1.Unix(-1<<62, 0)), ""},
		{"a namespace with a slash", []cluster.Object{e.service("odd", "vip4")}, named("de/fault", "odd"), "Kubernetes allows no such name"},
		{"a slice whose label has a newline", []cluster.Object{slice(func(s *discoveryv1.EndpointSlice) { s.Name = "other" })}, labelled("odd\n"), "its label names no Service"},
		{"10,000 addresses in an endpoint", []cluster.Object{slice(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = append(s.Endpoints[0].Addresses, addresses...)
		})}, nil, ""},
		{"no address in an endpoint", []cluster.Object{slice(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{}, discoveryv1.Endpoint{Addresses: []string{"\x00\xff"}}, discoveryv1.Endpoint{Addresses: []string{"fd00::1"}})
		})}, nil, "have no usable IPv4 address"},
		{"a slice's ports without sense", []cluster.Object{slice(func(s *discoveryv1.EndpointSlice) {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new("t"), Port: new(int32(-1))}, discoveryv1.EndpointPort{Name: new("t"), Port: new(int32(70_000))}, discoveryv1.EndpointPort{})
		})}, nil, "outside 1-65535"},
		{"texts that would steer a terminal", []cluster.Object{
			e.service("odd", "vip3", func(s *corev1.ServiceSpec) {
				s.Ports = append(s.Ports, corev1.ServicePort{Name: steering, Port: 1000, Protocol: corev1.Protocol(steering)}, corev1.ServicePort{Name: steering, Port: 1001})
				s.ExternalIPs, s.LoadBalancerSourceRanges, s.SessionAffinity = []string{steering}, []string{steering}, corev1.ServiceAffinity(steering)
			}),
			slice(func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].NodeName = new(steering)
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{steering}})
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(steering), Port: new(int32(8080))}, discoveryv1.EndpointPort{Name: new(steering)})
			})}, nil, "part of a Service is not served"},
	} {
		begun := time.Now()
		for _, s := range good {
			e.send(event{kind: watch.Modified, object: s.DeepCopyObject().(cluster.Object)})
		}
		logged := e.Logged(test.says)
		for _, obj := range test.objects {
			obj := obj.DeepCopyObject().(cluster.Object)
			if test.change != nil {
				test.change(obj)
			}
			e.send(event{kind: watch.Modified, object: obj})
		}
		if test.says != "" {
			e.Eventually(rig.Soon, test.name+": "+test.says, func() bool { return e.Logged(test.says) > logged })
		}
		e.Reach(rig.Soon, "pod1 tcp vip3:80", "pod3:8080")
		for _, command := range [][]string{{"status"}, {"status", "-o", "json"}, {"get", "services"}, {"get", "services", "-o", "json"}, {"get", "endpoints"},
			{"get", "endpoints", "odd", "-o", "json"}, {"explain", "odd:t"}, {"explain", "odd:t", "-o", "json"}} {
			out, errs, code := e.Command(command...)
			if code != 0 || errs != "" {
				e.T.Errorf("%s: sluice %s: code %d: %.500s%.500s", test.name, strings.Join(command, " "), code, errs, out)
			}
			if strings.Contains(out, "\x1b") || strings.Contains(out, "\nlevel=") {
				e.T.Errorf("%s: sluice %s prints what it should not: %q", test.name, strings.Join(command, " "), out)
			}
		}
		e.T.Logf("%s: %v", test.name, time.Since(begun).Round(time.Millisecond))
	}
	e.Reach(0, "pod1 tcp vip4:80", none)
	for line := range strings.Lines(e.Log.String()) {
		if strings.HasPrefix(line, "level=") {
			e.T.Errorf("an object wrote a line of its own into the log: %s", line)
		}
	}
	e.nothingToMend()
	e.AwaitNoProblem(inStep)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}
