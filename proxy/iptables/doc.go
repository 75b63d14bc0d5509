// Package iptables writes the desired state of a node's Services by iptables-restore, for
// kernels that lack nf_tables or a part of it. It works with both variants of iptables, legacy and nft.
//
// All chains are its own, with the prefix SLUICE-, in the tables nat and filter. Packets are
// led to a Service's chain in steps of address and port digits, so that the first packet of
// a connection passes tens of rules where there are thousands of Services:
//
//	variant.go   which iptables this machine uses
//	command.go   running its commands, in a network namespace
//	chain.go     rules as text, spelled as iptables-save spells them
//	trie.go      from an address and port to a chain, in steps
//	route.go     a route as chains
//	spread.go    the endpoints of a pool as rules
//	ruleset.go   the chains that always exist, and all chains of a state
//	writer.go    proxy.Writer: options, and how it is opened
//	cleanup.go   proxy.Writer: clean up
//	edit.go      proxy.Writer: one change
//	reconcile.go proxy.Writer: make the kernel equal to the state
//	compare.go   telling what in the kernel is not as it should be
//	restore.go   the input of iptables-restore
//	lock.go      the xtables lock, where iptables-restore does not take it
//	save.go      the output of iptables-save
//	slots.go     the endpoints that the kernel has, for a restart
//	watch.go     noticing that another program changed the rules
//	stamp.go     telling cheaply that rules may have changed
//	fingerprint.go all chains of ours as one sum
//	trace.go     following a packet through rules, planned or in the kernel
//	parse.go     a rule of iptables-save in pieces
//	firewall.go, firewall_match.go  what rules of other programs do with a packet
package iptables
