// Package dataplane holds the cases that a Service proxy has to pass: objects,
// and what becomes of packets that are sent when they are in force. All of it is in tests.
//
// A case (see case_test.go) is a table of text: manifests in short YAML, with the lab's
// addresses by name ($vip1, $pod2; see lab.Lab.Names), and probes like
//
//	outside tcp node:30080 => pod1:8080 far1:8080 from masqueraded
//
// (see probes_test.go). Each case runs in both IP families, with real packets in the network of package lab,
// against every subject: planner and writer of this module, and whatever else implements the interface subject.
//
// With SLUICE_KUBE_PROXY=/path/to/kube-proxy they run against that, too, which takes some minutes: so it is known that
// they expect what Kubernetes does.
package dataplane
