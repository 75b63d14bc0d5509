// Package sysctl sets the kernel parameters that a Service proxy needs. What
// cannot be set is said once and never an error: a read-only /proc/sys is
// common in containers, and the values may be right already.
package sysctl

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is where the kernel shows its parameters.
const Root = "/proc/sys"

const (
	// ramPerFlow bounds connection tracking to some 2 % of the RAM: an entry takes 320 bytes
	// (struct nf_conn and its extensions on a 64-bit kernel).
	ramPerFlow = 16 << 10
	minFlows   = 16384
	maxFlows   = 1 << 20
	// Idle connections are forgotten after a day instead of five, and half-closed ones after an
	// hour: kube-proxy's defaults (conntrack.tcpEstablishedTimeout, tcpCloseWaitTimeout).
	establishedTimeout = 86400
	closeWaitTimeout   = 3600
)

// Options for Apply.
type Options struct {
	// Root is Root, except in tests.
	Root string
	// RAM is the machine's memory in bytes.
	RAM uint64
	Log *slog.Logger
}

// WantedFlows is how many connections a machine with ram bytes of memory should be able to track.
func WantedFlows(ram uint64) int { return int(min(max(ram/ramPerFlow, minFlows), maxFlows)) }

// Change is a parameter that is not as it should be. Name has slashes for dots.
type Change struct {
	Name     string
	Is, Want int
}

// String is the change as sysctl -w takes it, and what it was.
func (c Change) String() string { return fmt.Sprintf("%s=%d (was %d)", c.dotted(), c.Want, c.Is) }

func (c Change) dotted() string { return strings.ReplaceAll(c.Name, "/", ".") }

// Apply sets the parameters of the network namespace of the calling thread, as far as they are not right.
func Apply(o Options) {
	for _, c := range Wanted(o) {
		o.set(c)
	}
}

// Wanted lists what Apply would set, in its order. It changes nothing.
func Wanted(o Options) (all []Change) {
	note := func(name string, wrong func(is, want int) bool, want int) {
		if is, err := o.read(name); err == nil && wrong(is, want) {
			all = append(all, Change{name, is, want})
		}
	}
	less := func(is, want int) bool { return is < want }
	more := func(is, want int) bool { return is > want }
	note("net/netfilter/nf_conntrack_max", less, WantedFlows(o.RAM))
	note("net/netfilter/nf_conntrack_tcp_timeout_established", more, establishedTimeout)
	note("net/netfilter/nf_conntrack_tcp_timeout_close_wait", less, closeWaitTimeout)
	note("net/ipv4/ip_forward", less, 1)
	// Where pods share a bridge, a packet from one to a Service whose endpoint is another passes the
	// rules only with these (module br_netfilter; the files are missing without it).
	note("net/bridge/bridge-nf-call-iptables", less, 1)
	note("net/bridge/bridge-nf-call-ip6tables", less, 1)
	return append(all, o.forwardIPv6()...)
}

// forwardIPv6 turns forwarding on without losing the node's own default route: an
// interface that forwards takes router advertisements only with accept_ra 2
// (Documentation/networking/ip-sysctl.rst).
func (o Options) forwardIPv6() (changes []Change) {
	const all = "net/ipv6/conf/all/forwarding"
	if on, err := o.read(all); err != nil || on != 0 {
		return nil // no IPv6, or nothing to do
	}
	dirs, _ := filepath.Glob(filepath.Join(o.Root, "net/ipv6/conf/*"))
	for _, dir := range dirs {
		name := filepath.Join("net/ipv6/conf", filepath.Base(dir), "accept_ra")
		if v, err := o.read(name); err == nil && v == 1 && filepath.Base(dir) != "all" {
			changes = append(changes, Change{name, v, 2})
		}
	}
	return append(changes, Change{all, 0, 1})
}

func (o Options) read(name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(o.Root, name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// set writes a value and logs that, with the value before: docs/install.md sends there who wants to put it back.
func (o Options) set(c Change) {
	err := os.WriteFile(filepath.Join(o.Root, c.Name), []byte(strconv.Itoa(c.Want)), 0)
	if err != nil {
		o.Log.Warn("kernel parameter not set", "name", c.dotted(), "value", c.Is, "wanted", c.Want, "error", err,
			"remedy", fmt.Sprintf("sysctl -w %s=%d on the host", c.dotted(), c.Want))
		return
	}
	o.Log.Info("kernel parameter set", "name", c.dotted(), "value", c.Want, "was", c.Is)
}
