// Package lab builds a small cluster's network out of network namespaces and
// sends probes through it.
//
//	       far1 far2            pod1 pod2 pod3
//	          \ /                  \ | /
//	         node2                  node          outside
//	           |                     |               |
//	───────────┴─────────────────────┴───────────────┴──── lan (with the router)
//
// The proxy under test runs in node. pod1 to pod3 are pods on it, far1 and far2
// pods on another node, and outside is a host that is no part of the cluster but
// routes the Services' addresses to node. What node lets out to an address that
// nobody has reaches the router, which answers "unreachable": so a packet that the
// proxy forgot is told from one that it dropped.
//
// The namespaces have no names: they are held by file descriptors alone, and the
// kernel removes them when the process ends, however it ends. The lab needs root, or a
// user namespace of its own (see Enter).
package lab
