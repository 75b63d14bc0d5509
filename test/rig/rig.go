package rig

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// Rig is a lab with an agent on its node.
type Rig struct {
	*Process
	Lab *lab.Lab
	// Names are the addresses of both families that texts may name: $pod1 and $pod1v6.
	Names map[string]netip.Addr
}

// New builds a lab and prepares an agent on its node.
func New(t *testing.T, args ...string) *Rig {
	t.Helper()
	l, err := lab.New(t.Context(), lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &Rig{Lab: l, Names: map[string]netip.Addr{}}
	for _, f := range proxy.Families {
		for name, a := range l.Names(f) {
			r.Names[name+Suffix[f]] = a
		}
	}
	args = append([]string{"--cluster-cidr", fmt.Sprintf("%v,%v", lab.ClusterCIDRs[proxy.IPv4], lab.ClusterCIDRs[proxy.IPv6])}, args...)
	r.Process = NewProcess(t, l.Node.Namespace, args...)
	return r
}

// Suffix is what the names of a family's addresses end with.
var Suffix = map[proxy.Family]string{proxy.IPv6: "v6"}

// Expand replaces names after a $ by addresses.
func (r *Rig) Expand(text string) string {
	r.T.Helper()
	return os.Expand(text, func(name string) string {
		a, ok := r.Names[name]
		if !ok {
			r.T.Fatalf("no address has the name $%s", name)
		}
		return a.String()
	})
}

var protocols = map[string]proxy.Protocol{"tcp": proxy.TCP, "udp": proxy.UDP}

// Probe makes a probe from "pod1 tcp vip1:80".
func (r *Rig) Probe(f proxy.Family, text string) lab.Probe {
	r.T.Helper()
	fields := strings.Fields(text)
	name, port, _ := strings.Cut(fields[2], ":")
	number, err := strconv.ParseUint(port, 10, 16)
	p := lab.Probe{From: r.Lab.Host(fields[0]), Protocol: protocols[fields[1]],
		To: netip.AddrPortFrom(r.Names[name+Suffix[f]], uint16(number)), Timeout: 300 * time.Millisecond}
	if err != nil || p.From == nil || p.Protocol == 0 || !p.To.Addr().IsValid() {
		r.T.Fatalf("probe %q: want HOST PROTOCOL ADDRESS:PORT", text)
	}
	return p
}

// Reach connects until new connections of both families meet just the wanted results, each of them: endpoints as HOST:PORT, or
// refused, unreachable or silence. "a|b" is one of the two.
func (r *Rig) Reach(within time.Duration, text string, want ...string) {
	r.T.Helper()
	for _, f := range proxy.Families {
		r.ReachIn(f, within, text, want...)
	}
}

// ReachIn does so in one family.
func (r *Rig) ReachIn(f proxy.Family, within time.Duration, text string, want ...string) {
	r.T.Helper()
	probe := r.Probe(f, text)
	if within == 0 && !expected(map[string]int{"silence": 1}, want, false) {
		probe.Timeout = 3 * time.Second // the machine may be busy
	}
	// The chance to miss one of them, or another endpoint of two that is still there, is below one in a million.
	n := max(20, 16*len(want)-8)
	if expected(map[string]int{"silence": 1}, want, false) {
		n = 4 // each takes long, and no endpoint is like it
	}
	begun := time.Now()
	for {
		got := map[string]int{}
		last := time.Now() // the changes were in force when the round began
		for range n {
			got[Met(probe.Send(r.T.Context()))]++
			if !expected(got, want, false) {
				break
			}
		}
		if expected(got, want, true) {
			return
		}
		if last.Sub(begun) > within {
			r.T.Fatalf("%v: %s: got %v, want %v within %v", f, text, got, want, within)
		}
		time.Sleep(time.Millisecond)
	}
}

// Met is a result without the source address.
func Met(r lab.Result) string {
	if r.Kind == lab.Reached {
		return r.Endpoint
	}
	return r.String()
}

// expected tells whether got has nothing but what is wanted, and, with all, everything of it.
func expected(got map[string]int, want []string, all bool) bool {
	seen := map[string]bool{}
	for result := range maps.Keys(got) {
		i := slices.IndexFunc(want, func(w string) bool { return slices.Contains(strings.Split(w, "|"), result) })
		if i < 0 {
			return false
		}
		seen[want[i]] = true
	}
	return !all || len(seen) == len(want)
}

// OnNode runs a command on the node, which must succeed.
func (r *Rig) OnNode(command string, args ...string) string {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := r.Lab.Node.Run(ctx, "", command, args...)
	if err != nil {
		r.T.Fatal(err)
	}
	return out
}

// TryOnNode runs a command on the node and tells whether it succeeded.
func (r *Rig) TryOnNode(command string, args ...string) bool {
	r.T.Helper()
	_, err := r.Lab.Node.Run(r.T.Context(), "", command, args...)
	return err == nil
}

// Table lists sluice's table of a family.
func (r *Rig) Table(f proxy.Family) string {
	r.T.Helper()
	return r.OnNode("nft", "list", "table", NFTFamily[f], "sluice")
}

// NFTFamily is nft's word for a family.
var NFTFamily = map[proxy.Family]string{proxy.IPv4: "ip", proxy.IPv6: "ip6"}

// Counters reads the counters of a ClusterIP's frontends, by family and protocol.
func (r *Rig) Counters(vip string) map[string]int {
	r.T.Helper()
	counts := map[string]int{}
	for _, f := range proxy.Families {
		out := r.OnNode("nft", "list", "map", NFTFamily[f], "sluice", "service-ips")
		element := regexp.MustCompile(regexp.QuoteMeta(r.Names[vip+Suffix[f]].String()) + ` \. (\w+) \. 80 [^,}]*?packets (\d+)`)
		for _, m := range element.FindAllStringSubmatch(out, -1) {
			counts[f.String()+" "+m[1]], _ = strconv.Atoi(m[2])
		}
	}
	return counts
}
