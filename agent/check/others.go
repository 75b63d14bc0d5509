package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/kubeproxy"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// others looks at the rules of other programs.
func (l *looker) others() []Item {
	found, err := kubeproxy.Find(l.ctx)
	items := []Item{judgeLeftovers(found, err), judgeK3s(l.k3s())}

	used := map[string]int{}
	var plain string
	var errs []error
	for _, v := range probe.Variants(l.ctx) {
		if v.Plain {
			plain = v.Name
		}
		used[v.Name] = 0
		for _, f := range proxy.Families {
			var fw forward
			if err := v.List(l.ctx, f, fw.reader()); err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", f, err))
				continue
			}
			used[v.Name] += fw.rules
			items = append(items, judgeForward(v.Name, f, fw, l.pods(f)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		items = append(items, unseen("iptables rules", err))
	} else {
		items = append(items, judgeVariants(plain, used))
	}
	chains, err := nft.BaseChains(nft.Options{})
	if err != nil {
		return append(items, unseen("nftables chains", err))
	}
	return append(items, judgeBaseChains(chains, l.pods)...)
}

// judgeLeftovers is about kube-proxy's rules: they send the same packets elsewhere.
func judgeLeftovers(found []kubeproxy.Leftover, err error) Item {
	const name = "kube-proxy's rules"
	const remedy = "turn kube-proxy off (k3s: disable-kube-proxy: true on all servers), then: sluice cleanup --kube-proxy"
	var serving, rest, kept []string
	for _, l := range found {
		if l.Serves() {
			serving = append(serving, l.String())
		} else if len(l.Chains) > 0 {
			rest = append(rest, l.String())
		}
		if len(l.Kept) > 0 {
			kept = append(kept, fmt.Sprintf("%s in table %s of %s (%v)", strings.Join(l.Kept, " and "), l.Table, l.Place, l.Family))
		}
	}
	switch {
	case len(serving) > 0:
		return fail(name, remedy, "%s", strings.Join(serving, ", "))
	case err != nil:
		return unseen(name, err)
	case len(rest) > 0:
		return warn(name, remedy, "they serve nothing: %s", strings.Join(rest, ", "))
	case len(kept) > 0:
		return ok(name, "none but chains that other programs' rules lead to, which stay: %s", strings.Join(kept, ", "))
	}
	return ok(name, "none")
}

// k3s is what this machine's k3s is told.
type k3s struct {
	server, agent bool
	disabled      bool   // kube-proxy is
	file          string // that says so, or where it can be said
	err           error
}

// k3s reads k3s's configuration and its unit file.
func (l *looker) k3s() (k k3s) {
	_, err := os.Stat(l.path("var/lib/rancher/k3s/server"))
	k.server = err == nil
	_, err = os.Stat(l.path("var/lib/rancher/k3s/agent"))
	k.agent = err == nil
	const config = "etc/rancher/k3s/config.yaml"
	k.file = "/" + config
	more, _ := filepath.Glob(l.path(config + ".d/*.yaml"))
	for _, path := range append([]string{l.path(config)}, more...) {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var values struct {
			Disable *bool `json:"disable-kube-proxy"`
		}
		if err == nil {
			err = yaml.Unmarshal(b, &values)
		}
		if err != nil {
			k.err = errors.Join(k.err, err)
		} else if values.Disable != nil { // a later file wins
			k.disabled, k.file = *values.Disable, path
		}
	}
	for _, path := range []string{"etc/systemd/system/k3s.service", "etc/systemd/system/k3s.service.env", "etc/init.d/k3s"} {
		if b, err := os.ReadFile(l.path(path)); err == nil && strings.Contains(string(b), "--disable-kube-proxy") &&
			!strings.Contains(string(b), "--disable-kube-proxy=false") {
			k.disabled, k.file = true, l.path(path) // the command line wins
		}
	}
	return k
}

// judgeK3s is about the flag that keeps k3s from running a kube-proxy, in the whole cluster.
func judgeK3s(k k3s) Item {
	const name = "k3s's kube-proxy"
	switch {
	case k.server && k.err != nil && !k.disabled:
		return unseen(name, k.err)
	case k.server && !k.disabled:
		return fail(name, "write disable-kube-proxy: true into it, on each server of the cluster, and restart k3s there", "it is on: %s does not turn it off", k.file)
	case k.server:
		return ok(name, "off by %s", k.file)
	case k.agent:
		return ok(name, "the servers of the cluster decide; see there for disable-kube-proxy: true")
	}
	return ok(name, "k3s is not on this machine")
}

// judgeVariants is about rules in both variants: packets pass both, and no tool shows them together.
func judgeVariants(plain string, rules map[string]int) Item {
	const name = "iptables variants"
	switch {
	case len(rules) == 0:
		return ok(name, "no iptables is installed; nftables needs none")
	case rules[iptables.NFT] > 0 && rules[iptables.Legacy] > 0:
		return warn(name, "move the fewer to the other: restart their programs with one variant chosen (Debian: update-alternatives --config iptables)",
			"both are in use: iptables-nft has %d rules, iptables-legacy %d", rules[iptables.NFT], rules[iptables.Legacy])
	case plain != "" && rules[plain] == 0 && rules[iptables.NFT]+rules[iptables.Legacy] > 0:
		other := iptables.NFT
		if plain == other {
			other = iptables.Legacy
		}
		return warn(name, fmt.Sprintf("choose one variant (Debian: update-alternatives --set iptables /usr/sbin/%s)", other),
			"the rules are in %s, but \"iptables\" is %s", other, plain)
	}
	return ok(name, "\"iptables\" is %s", plain)
}
