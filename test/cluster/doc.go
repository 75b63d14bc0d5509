// Package cluster runs a real control plane for tests: etcd and kube-apiserver.
//
// They run in a network namespace of their own, as 192.168.60.1, which other namespaces
// join by a link each (see Cluster.Join); or on loopback of the namespace that the test runs
// in. Nothing else of Kubernetes runs, so Services, their EndpointSlices and Nodes are
// what the test writes. test/peers/build makes both programs, once.
package cluster
