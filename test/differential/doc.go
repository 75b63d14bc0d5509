// Package differential compares the agent with kube-proxy: two equal labs, one proxy on
// the node of each, both following one real API server. Objects change at random, and after each
// change the same packets must meet the same answers in both.
package differential
