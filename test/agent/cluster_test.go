package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// cluster is a lab with an agent on its node.
type cluster struct {
	*process
	lab *lab.Lab
	// names are the addresses of both families that texts may name: $pod1 and $pod1v6.
	names map[string]netip.Addr
}

// newCluster builds a lab and prepares an agent on its node.
func newCluster(t *testing.T, args ...string) *cluster {
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
	c := &cluster{lab: l, names: map[string]netip.Addr{}}
	for _, f := range proxy.Families {
		for name, a := range l.Names(f) {
			c.names[name+suffix[f]] = a
		}
	}
	args = append([]string{"--cluster-cidr", fmt.Sprintf("%v,%v", lab.ClusterCIDRs[proxy.IPv4], lab.ClusterCIDRs[proxy.IPv6])}, args...)
	c.process = newProcess(t, l.Node.Namespace, args...)
	c.write("cidr.yaml", serviceCIDR)
	return c
}

// suffix is what the names of a family's addresses end with.
var suffix = map[proxy.Family]string{proxy.IPv6: "v6"}

// expand replaces names after a $ by addresses.
func (c *cluster) expand(text string) string {
	c.t.Helper()
	return os.Expand(text, func(name string) string {
		a, ok := c.names[name]
		if !ok {
			c.t.Fatalf("no address has the name $%s", name)
		}
		return a.String()
	})
}

// write puts a manifest with names in it into the directory in one step.
func (c *cluster) write(file string, texts ...string) {
	c.t.Helper()
	c.process.write(file, c.expand(strings.Join(texts, "---\n")))
}

var protocols = map[string]proxy.Protocol{"tcp": proxy.TCP, "udp": proxy.UDP}

// probe makes a probe from "pod1 tcp vip1:80".
func (c *cluster) probe(f proxy.Family, text string) lab.Probe {
	c.t.Helper()
	fields := strings.Fields(text)
	name, port, _ := strings.Cut(fields[2], ":")
	number, err := strconv.ParseUint(port, 10, 16)
	p := lab.Probe{From: c.lab.Host(fields[0]), Protocol: protocols[fields[1]],
		To: netip.AddrPortFrom(c.names[name+suffix[f]], uint16(number)), Timeout: 300 * time.Millisecond}
	if err != nil || p.From == nil || p.Protocol == 0 || !p.To.Addr().IsValid() {
		c.t.Fatalf("probe %q: want HOST PROTOCOL ADDRESS:PORT", text)
	}
	return p
}

// reach connects until new connections of both families meet just the wanted results, each of them: endpoints as HOST:PORT, or
// refused, unreachable or silence. "a|b" is one of the two.
func (c *cluster) reach(within time.Duration, text string, want ...string) {
	c.t.Helper()
	for _, f := range proxy.Families {
		c.reachIn(f, within, text, want...)
	}
}

func (c *cluster) reachIn(f proxy.Family, within time.Duration, text string, want ...string) {
	c.t.Helper()
	probe := c.probe(f, text)
	if within == 0 && !expected(map[string]int{"silence": 1}, want, false) {
		probe.Timeout = 3 * time.Second // the machine may be busy
	}
	n := 4
	if len(want) > 1 {
		n = 16*len(want) - 8 // the chance to miss one of them is below one in a million
	}
	begun := time.Now()
	for {
		got := map[string]int{}
		last := time.Now() // the changes were in force when the round began
		for range n {
			got[met(probe.Send(c.t.Context()))]++
			if !expected(got, want, false) {
				break
			}
		}
		if expected(got, want, true) {
			return
		}
		if last.Sub(begun) > within {
			c.t.Fatalf("%v: %s: got %v, want %v within %v", f, text, got, want, within)
		}
		time.Sleep(time.Millisecond)
	}
}

// met is a result without the source address.
func met(r lab.Result) string {
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

// onNode runs a command on the node, which must succeed.
func (c *cluster) onNode(command string, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := c.lab.Node.Run(ctx, "", command, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// tryOnNode runs a command on the node and tells whether it succeeded.
func (c *cluster) tryOnNode(command string, args ...string) bool {
	c.t.Helper()
	_, err := c.lab.Node.Run(c.t.Context(), "", command, args...)
	return err == nil
}

// table lists sluice's table of a family.
func (c *cluster) table(f proxy.Family) string {
	c.t.Helper()
	return c.onNode("nft", "list", "table", nftFamily[f], "sluice")
}

var nftFamily = map[proxy.Family]string{proxy.IPv4: "ip", proxy.IPv6: "ip6"}
