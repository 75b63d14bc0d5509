// Package explain says what becomes of a connection to a Service on this node, and why, in words for people who know
// Services and not netfilter. It asks proxy.State.Decide, which the data-plane tests hold against what packets meet.
package explain
