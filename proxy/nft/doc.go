// Package nft writes the desired state of a node's Services into nf_tables, by
// raw netlink, one table per IP family: `ip sluice` and `ip6 sluice`.
//
// The rules are a fixed handful; Services and endpoints are elements of maps,
// so that a change costs the elements that differ:
//
//	sets.go       the sets and maps, and what a key of each is
//	ruleset.go    the chains and their rules
//	elements.go   a route as elements
//	writer.go     proxy.Writer: one change, clean up
//	reconcile.go  proxy.Writer: make the kernel equal to the state
//	table.go, readback.go       what the kernel has of our table
//	batch.go      elements, chains and rules as one transaction
//	carry.go      elements that take over what others counted
//	ranges.go     removing many source ranges at once
//	affinity.go   forgetting clients of endpoints that are gone
//	counters.go   new connections of each frontend
//	compare.go    telling what in the kernel is not as it should be
//	trace.go, trace_rule.go, rulebooks.go, registers.go  following a packet through rules, planned or in the kernel
//	expression.go, text.go      rules as the kernel has them, and in nft's words
//	monitor.go, filter.go       noticing that another program changed the table
//	makers.go, owner.go         which program that was
//	peers.go      the writers of one program, which do not take each other for another
//	basechains.go, foreign.go   chains of all programs, and whether something of another is there
//	precedence.go which priority our nat chains have, beside those of others
//	firewall.go, firewall_rule.go, firewall_set.go  what chains of other programs do with a packet
//	probe.go, trials.go         whether the kernel has what the rules are made of
//	conn.go, encode.go          netlink
package nft
