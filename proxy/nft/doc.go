// Package nft writes the desired state of a node's Services into nf_tables, by
// raw netlink, one table per IP family: `ip sluice` and `ip6 sluice`.
//
// The rules are a fixed handful; Services and endpoints are elements of maps,
// so that a change costs the elements that differ:
//
//	sets.go      the sets and maps, and what a key of each is
//	ruleset.go   the chains and their rules
//	elements.go  a route as elements
//	batch.go     elements, chains and rules as one transaction
//	writer.go    proxy.Writer: one change, clean up
//	reconcile.go proxy.Writer: make the kernel equal to the state
//	readback.go  what the kernel has
//	ranges.go    removing many source ranges at once
//	affinity.go  forgetting clients of endpoints that are gone
//	compare.go   telling what in the kernel is not as it should be
//	trace.go     following a packet through rules, planned or in the kernel (trace_rule.go, rulebooks.go)
//	expression.go, text.go  rules as the kernel has them, and in nft's words
//	monitor.go   noticing that another program changed the table
//	conn.go, encode.go  netlink
package nft
