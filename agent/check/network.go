package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/agent/sysctl"
)

// parameter is a kernel parameter. The namespace is that of the thread that reads.
type parameter struct {
	value   int
	missing bool
	// writable: root can set it, whoever asks.
	writable bool
}

func readParameter(name string) (p parameter, err error) {
	path := filepath.Join(sysctl.Root, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return parameter{missing: true}, nil
	}
	if err != nil {
		return p, err
	}
	// Root may write everything, but not on a file system that is read-only.
	var st unix.Statfs_t
	readOnly := unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
	p.writable = !readOnly && (os.Geteuid() != 0 || unix.Access(path, unix.W_OK) == nil)
	p.value, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return p, err
}

// network looks at the kernel's parameters.
func (l *looker) network() []Item {
	var items []Item
	see := func(name, parameter string, judge func(parameter) Item) {
		p, err := readParameter(parameter)
		if err != nil {
			items = append(items, unseen(name, err))
			return
		}
		items = append(items, judge(p))
	}
	see("ip_forward", "net/ipv4/ip_forward", func(p parameter) Item { return judgeSwitch("ip_forward", "net.ipv4.ip_forward", p) })
	see("IPv6 forwarding", "net/ipv6/conf/all/forwarding", func(p parameter) Item {
		if p.missing {
			return ok("IPv6 forwarding", "this machine has no IPv6")
		}
		return judgeSwitch("IPv6 forwarding", "net.ipv6.conf.all.forwarding", p)
	})
	items = append(items, judgeReversePath(reversePaths()))
	bridges, _ := filepath.Glob("/sys/class/net/*/bridge")
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		see(name, "net/bridge/"+name, func(p parameter) Item { return judgeBridge(name, p, len(bridges) > 0) })
	}
	maximum, err := readParameter("net/netfilter/nf_conntrack_max")
	if err != nil {
		return append(items, unseen("nf_conntrack_max", err))
	}
	flows, err := sysctl.ReadFlows(sysctl.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return append(items, unseen("nf_conntrack_max", err))
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return append(items, unseen("nf_conntrack_max", err))
	}
	return append(items, judgeConntrack(maximum, flows, uint64(info.Totalram)*uint64(info.Unit)))
}

// judgeSwitch is about a parameter that must be on, and that the agent turns on.
func judgeSwitch(name, dotted string, p parameter) Item {
	switch {
	case p.missing:
		return fail(name, "use a kernel that can forward packets", "the kernel has no %s", dotted)
	case p.value != 0:
		return ok(name, "")
	case p.writable:
		return warn(name, fmt.Sprintf("none is needed: sluice agent sets it; by hand: sysctl -w %s=1", dotted), "it is off")
	}
	return fail(name, fmt.Sprintf("sysctl -w %s=1 on the host", dotted), "it is off and cannot be set here")
}

// reversePaths reads rp_filter of each interface; the larger of "all" and the interface's own counts.
func reversePaths() map[string]int {
	values := map[string]int{}
	dirs, _ := filepath.Glob(filepath.Join(sysctl.Root, "net/ipv4/conf/*"))
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if p, err := readParameter("net/ipv4/conf/" + name + "/rp_filter"); err == nil && !p.missing {
			values[name] = p.value
		}
	}
	return values
}

// judgeReversePath is about strict reverse path filtering (RFC 3704, 1 in ip-sysctl.rst): it drops what comes
// in by another interface than answers would leave by.
func judgeReversePath(values map[string]int) Item {
	const name = "rp_filter"
	var strict []string
	for iface, v := range values {
		if iface != "all" && iface != "default" && iface != "lo" && max(v, values["all"]) == 1 {
			strict = append(strict, iface)
		}
	}
	if len(strict) == 0 {
		return ok(name, "")
	}
	slices.Sort(strict)
	remedy := "sysctl -w net.ipv4.conf.all.rp_filter=2 (loose)"
	return warn(name, remedy, "strict at %s: packets of Services that come in by another interface than the answer would leave by are dropped", strings.Join(strict, ", "))
}

// judgeBridge is about packets between pods on one bridge, which pass the rules only with this.
func judgeBridge(name string, p parameter, bridges bool) Item {
	switch {
	case p.missing && !bridges:
		return ok(name, "there is no bridge")
	case p.missing:
		return warn(name, "modprobe br_netfilter (CONFIG_BRIDGE_NETFILTER), and add it to /etc/modules-load.d/br_netfilter.conf",
			"the module br_netfilter is not loaded: a pod does not reach Services whose endpoint is on the same bridge")
	}
	return judgeSwitch(name, "net.bridge."+name, p)
}

// bytesPerFlow is the memory of a tracked connection: struct nf_conn and its extensions on a 64-bit kernel.
const bytesPerFlow = 320

// judgeConntrack is about the table of connections: too small loses connections, too large the machine.
func judgeConntrack(maximum parameter, flows sysctl.Flows, ram uint64) Item {
	const name = "nf_conntrack_max"
	wanted := sysctl.WantedFlows(ram)
	set := fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", wanted)
	switch {
	case maximum.missing:
		return warn(name, "modprobe nf_conntrack (CONFIG_NF_CONNTRACK)", "connection tracking is not loaded; the first rule loads it")
	case flows.Full():
		return fail(name, flows.Room(wanted), "%v", flows)
	case flows.Filling():
		return warn(name, flows.Room(wanted), "%v", flows)
	case maximum.value < wanted && maximum.writable:
		return warn(name, "none is needed: sluice agent sets it; by hand: "+set, "%d is little for %d MB of memory", maximum.value, ram>>20)
	case maximum.value < wanted:
		return warn(name, set+" on the host", "%d is little for %d MB of memory, and it cannot be set here", maximum.value, ram>>20)
	case uint64(maximum.value)*bytesPerFlow > ram/4:
		return warn(name, set, "%d connections could take %d of %d MB of memory", maximum.value, uint64(maximum.value)*bytesPerFlow>>20, ram>>20)
	}
	return ok(name, "%d, of which %d are in use", maximum.value, flows.Count)
}
