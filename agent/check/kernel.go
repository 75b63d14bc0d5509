package check

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/conntrack"
	"sluice/proxy/probe"
)

// kernel looks at what the kernel can do.
func (l *looker) kernel() []Item {
	r := probe.Run(l.ctx, probe.Options{})
	items := []Item{judgeMode(r, l.Config.ProxyMode), judgeModules(r.Host)}
	chosen, _, _ := r.Choose(l.Config.ProxyMode)
	items = append(items, judgeSet(r.Host, *r.NFTables, chosen != proxy.ModeNFTables)...)
	for _, s := range r.IPTables {
		items = append(items, judgeSet(r.Host, s, chosen != proxy.ModeIPTables)...)
	}
	c, err := conntrack.Open(conntrack.Options{})
	if err == nil {
		c.Close()
	}
	return append(items, judgeConntrackAccess(err))
}

// judgeMode says which mode the agent would take.
func judgeMode(r probe.Result, mode string) Item {
	const name = "proxy mode"
	chosen, why, err := r.Choose(mode)
	switch {
	case err != nil && (r.NFTables == nil || r.NFTables.Err != ""):
		return unseen(name, err)
	case err != nil:
		return fail(name, "see the lines below", "%v", err)
	case strings.Contains(why, "not served"):
		return warn(name, "see the lines below", "%s: %s", chosen, why)
	}
	return ok(name, "%s: %s", chosen, why)
}

func judgeModules(h probe.Host) Item {
	const name = "modules"
	if h.Modules {
		return ok(name, "those of the running kernel %s are there", h.Kernel)
	}
	return warn(name, "start the machine again if its kernel was updated; a kernel that has all it needs built in, and a container, need none",
		"those of the running kernel %s are not in /lib/modules: none can be loaded", h.Kernel)
}

// judgeSet makes an Item of each feature, its families together. What the mode that is
// taken does not need is a warning at most, and one line if nothing is missing.
func judgeSet(h probe.Host, s probe.Set, spare bool) []Item {
	if s.Err != "" {
		item := unseen(s.Name, errors.New(s.Err))
		item.Remedy = s.Remedy
		return []Item{item}
	}
	if spare && len(s.Missing()) == 0 {
		return []Item{ok(s.Name, "has all that it needs")}
	}
	var items []Item
	var names []string
	for _, f := range s.Features {
		if slices.Contains(names, f.Name) {
			continue
		}
		names = append(names, f.Name)
		var good []string
		var missing []probe.Feature
		for _, g := range s.Features {
			switch {
			case g.Name != f.Name:
			case g.OK:
				good = append(good, g.Family)
			default:
				missing = append(missing, g)
			}
		}
		items = append(items, judgeFeature(h, s.Name+": "+f.Name, good, missing, spare))
	}
	return items
}

func judgeFeature(h probe.Host, name string, good []string, missing []probe.Feature, spare bool) Item {
	if len(missing) == 0 {
		return ok(name, "%s", strings.Join(good, ", "))
	}
	var families []string
	for _, f := range missing {
		families = append(families, f.Family)
	}
	if missing[0].Optional {
		// No module brings it: what the rules do without is new in a later kernel.
		return warn(name, "none is needed: the rules do without it; a newer kernel has it",
			"the running kernel %s is older than this: %s", h.Kernel, missing[0].Error)
	}
	item := fail(name, h.Remedy(missing), "missing for %s (%s): %s", strings.Join(families, " and "), strings.Join(missing[0].Config, ", "), missing[0].Error)
	if spare {
		item.Level = Warn
	}
	return item
}

// judgeConntrackAccess is about the deletion of stale UDP flows.
func judgeConntrackAccess(err error) Item {
	const name = "connection tracking over netlink"
	if errors.Is(err, unix.EPERM) {
		return unseen(name, err)
	}
	if err != nil {
		return warn(name, "modprobe nf_conntrack_netlink (CONFIG_NF_CT_NETLINK)",
			"UDP flows to endpoints that are gone cannot be ended: %v", err)
	}
	return ok(name, "")
}
