// Package agent tests the agent as a process, with real packets in the network of
// package lab: what it does about signals and kills, about other programs that touch its rules, about
// changes of the node, of manifests and of the agent's own surroundings. All of it is in tests.
//
// Which endpoint a packet has to reach in which case is not told here but by the cases of test/dataplane.
package agent
