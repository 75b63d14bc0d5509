package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sluice/proxy"
	"sluice/proxy/iptables"
)

// tryChain is the chain that rules are tried in; nothing leads to it.
const tryChain = "SLUICE-TRY"

// match is an iptables match or target (or a table, without a rule) and a rule that uses it.
type match struct {
	name           string
	table          string
	rule           string
	config, module string
	optional       bool
}

// matches lists what is tried in a family. Options and modules are those of net/netfilter/Kconfig and net/ipv4/netfilter/Kconfig.
func matches(f proxy.Family, variant string) []match {
	ip, short, unreachable, address, rejectModule := "IP", "ip", "icmp-port-unreachable", "192.0.2.1", "ipt_REJECT"
	if f == proxy.IPv6 {
		ip, short, unreachable, address, rejectModule = "IP6", "ip6", "icmp6-port-unreachable", "[2001:db8::1]", "ip6t_REJECT"
	}
	nat := match{name: "table nat", table: "nat", config: ip + "_NF_NAT NF_NAT", module: short + "table_nat"}
	filter := match{name: "table filter", table: "filter", config: ip + "_NF_FILTER " + ip + "_NF_IPTABLES", module: short + "table_filter"}
	if variant == iptables.NFT {
		nat.config, nat.module = "NF_TABLES NFT_NAT NFT_COMPAT", "nft_chain_nat"
		filter.config, filter.module = "NF_TABLES NFT_COMPAT", "nft_compat"
	}
	xt := func(name, table, rule, kind string) match {
		what, module := "match ", "xt_"+name
		if kind == "TARGET" {
			what = "target "
		}
		return match{name: what + name, table: table, rule: rule, config: "NETFILTER_XT_" + kind + "_" + strings.ToUpper(name), module: module}
	}
	mark := xt("mark", "nat", "-m mark --mark 0x4000/0x4000", "")
	mark.config = "NETFILTER_XT_MARK"
	markTarget := match{name: "target MARK", table: "nat", rule: "-j MARK --set-xmark 0x4000/0x4000", config: "NETFILTER_XT_MARK", module: "xt_mark"}
	masquerade := xt("MASQUERADE", "nat", "-j MASQUERADE", "TARGET")
	fully := masquerade
	fully.name, fully.rule, fully.optional = "MASQUERADE --random-fully", "-j MASQUERADE --random-fully", true
	sctp := xt("sctp", "nat", "-p sctp -m sctp --dport 80", "MATCH")
	sctp.optional = true // only Services with SCTP need it
	ports := func(protocol string) match {
		return match{name: "match " + protocol, table: "nat", rule: "-p " + protocol + " -m " + protocol + " --dport 80", config: "NETFILTER_XTABLES", module: "xt_tcpudp"}
	}
	return []match{
		nat, filter, ports("tcp"), ports("udp"), sctp,
		xt("comment", "nat", `-m comment --comment "a/b:c"`, "MATCH"),
		xt("conntrack", "filter", "-m conntrack --ctstate NEW", "MATCH"),
		xt("addrtype", "nat", "-m addrtype --src-type LOCAL", "MATCH"),
		mark, markTarget,
		xt("statistic", "nat", "-m statistic --mode random --probability 0.5", "MATCH"),
		xt("recent", "nat", "-m recent --name "+tryChain+" --rcheck --seconds 10 --reap", "MATCH"),
		{name: "target DNAT", table: "nat", rule: "-p tcp -j DNAT --to-destination " + address + ":80", config: "NETFILTER_XT_NAT", module: "xt_nat"},
		masquerade, fully,
		{name: "target REJECT", table: "filter", rule: "-p udp -j REJECT --reject-with " + unreachable,
			config: ip + "_NF_TARGET_REJECT", module: rejectModule},
		{name: "target REJECT --reject-with tcp-reset", table: "filter", rule: "-p tcp -j REJECT --reject-with tcp-reset",
			config: ip + "_NF_TARGET_REJECT", module: rejectModule},
	}
}

// tryIPTables tries the matches and targets with one variant.
func tryIPTables(ctx context.Context, ns *os.File, v Variant, families []proxy.Family) Set {
	s := Set{Name: v.Name}
	for _, f := range families {
		list := matches(f, v.Name)
		programs, installed := v.Programs[f]
		if !installed {
			s.add(f, "program "+iptables.Command(f)+"-restore", "", "", false, errors.New("it is not installed"))
			s.Features[len(s.Features)-1].Package = programPackages(v.Name)
			continue
		}
		t := tester{ns: ns, restore: programs.Restore}
		whole := t.try(ctx, list)
		switch {
		case errors.Is(whole, errNotPermitted):
			s.Err, s.Remedy = whole.Error(), asRoot
			return s
		case errors.Is(whole, errLocked):
			s.Err, s.Remedy = whole.Error(), "end the program that holds the lock (fuser /run/xtables.lock names it)"
			return s
		}
		for _, m := range list {
			var err error
			if whole != nil {
				err = t.try(ctx, []match{m})
			}
			s.add(f, m.name, m.config, m.module, m.optional, err)
			if err != nil && strings.Contains(err.Error(), "Couldn't load") {
				last := &s.Features[len(s.Features)-1] // the program's part of it is missing, not the kernel's
				last.Config, last.Module, last.Package = nil, "", programPackages(v.Name)
			}
			if err != nil && m.rule == "" {
				break // without the table the others cannot be tried
			}
		}
		t.cleanUp(ctx)
	}
	return s
}

// Why nothing could be tried: this process may not change rules, or another one is changing them all the time.
var (
	errNotPermitted = errors.New("not permitted")
	errLocked       = errors.New("another program holds the lock of iptables")
)

// tester runs iptables-restore.
type tester struct {
	ns      *os.File // nil: this process's own
	restore string
}

// try loads rules with these matches into a chain.
func (t *tester) try(ctx context.Context, list []match) error {
	rules := map[string][]string{}
	for _, m := range list {
		rules[m.table] = append(rules[m.table], m.rule)
	}
	var b bytes.Buffer
	for _, table := range []string{"nat", "filter"} {
		if rules[table] == nil {
			continue
		}
		fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n", table, tryChain)
		for _, r := range rules[table] {
			if r != "" {
				fmt.Fprintf(&b, "-A %s %s\n", tryChain, r)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return t.run(ctx, b.Bytes())
}

// cleanUp removes the chain. In a namespace that goes anyway there is no need.
func (t *tester) cleanUp(ctx context.Context) {
	if t.ns != nil {
		return
	}
	for _, table := range []string{"nat", "filter"} {
		// It is not there where the table is not.
		_ = t.run(ctx, fmt.Appendf(nil, "*%s\n:%s - [0:0]\n-X %s\nCOMMIT\n", table, tryChain, tryChain))
	}
}

func (t *tester) run(ctx context.Context, input []byte) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	ns := 0
	if t.ns != nil {
		ns = int(t.ns.Fd())
	}
	err := iptables.Run(ctx, ns, func(to io.Writer) error {
		_, err := to.Write(input)
		return err
	}, nil, t.restore, "--noflush", "-w", lockSeconds)
	var failed *iptables.CommandError
	if !errors.As(err, &failed) {
		return err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(failed.Stderr), "\n")
	says := func(s string) bool { return strings.Contains(failed.Stderr, s) }
	switch {
	case says("Permission denied"), says("must be root"), says("Operation not permitted"):
		return fmt.Errorf("%w: %s", errNotPermitted, line)
	case says("xtables lock"):
		return fmt.Errorf("%w: %s", errLocked, line)
	case line == "":
		return failed.Err
	}
	return errors.New(line)
}
