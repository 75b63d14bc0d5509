// Package probe finds out what the kernel and the iptables programs of this machine can
// do for a writer, by trying it: nothing is concluded from versions. It then chooses the
// writer, and says in a sentence why, or what is missing and how it is mended.
//
// It tries in a network namespace that it makes and throws away. Where that is not permitted it tries in
// this one, in an nftables table that sees no packets and in an iptables chain that nothing leads to.
//
//	probe.go      Run
//	choose.go     which mode, and why
//	iptables.go   the matches and targets, tried through iptables-restore
//	variants.go   which iptables programs there are
//	remedy.go     what to do about something that is missing
//	host.go       which distribution and kernel this is
//	namespace.go  the throw-away network namespace
package probe
