package iptables

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// matches tells whether a packet meets all conditions of a rule.
func (j *judge) matches(r *parsedRule) firewall.Ternary {
	all := firewall.Yes
	module := ""
	for i := range r.options {
		o := &r.options[i]
		if o.name == "-m" {
			if module = o.arg(); !slices.Contains(knownModules, module) {
				all = firewall.Maybe // what it asks for is not looked at
			}
			continue
		}
		m := j.option(module, o)
		if o.negated {
			m = m.Not()
		}
		if all = min(all, m); all == firewall.No {
			return firewall.No
		}
	}
	return all
}

// knownModules are the matches whose options are judged. A match without options, like tcp, lets all packets through.
var knownModules = []string{"comment", "conntrack", "state", "tcp", "udp", "sctp", "multiport", "mark", "addrtype", "iprange", "rpfilter"}

func (j *judge) option(module string, o *option) firewall.Ternary {
	p := j.p
	arg := o.arg()
	switch o.name {
	case "-s", "-d":
		a := p.From.Addr
		if o.name == "-d" {
			a = p.Endpoint.Addr()
		}
		prefix, err := netip.ParsePrefix(arg)
		if err != nil || !a.IsValid() {
			return firewall.Maybe
		}
		return firewall.Judged(prefix.Contains(a))
	case "-p":
		return firewall.Judged(arg == "all" || arg == protocolName(p.To.Protocol) || arg == strconv.Itoa(int(p.To.Protocol)))
	case "-i":
		return interfaceIs(p.In, arg)
	case "-o":
		return interfaceIs(p.Out, arg)
	}
	switch module {
	case "comment":
		return firewall.Yes
	case "conntrack", "state":
		return j.conntrack(o)
	case "tcp", "udp", "sctp", "multiport":
		return j.port(o)
	case "mark":
		value, mask, err := parseMark(arg)
		if o.name != "--mark" || err != nil {
			return firewall.Maybe
		}
		switch known := ^j.marks.unknown; {
		case (j.marks.packet&mask^value)&known != 0:
			return firewall.No
		case mask&^known != 0:
			return firewall.Maybe
		}
		return firewall.Yes
	case "addrtype":
		local := map[string]bool{"--src-type": p.From.Local, "--dst-type": p.OnNode}
		is, known := local[o.name]
		known = known && !(j.early && o.name == "--dst-type")
		switch {
		case known && arg == "LOCAL":
			return firewall.Judged(is)
		case known && arg == "UNICAST":
			return firewall.Judged(!is)
		case known && (arg == "BROADCAST" || arg == "MULTICAST"):
			return firewall.No
		}
	case "rpfilter": // it is taken for granted that it comes in where its answer goes out
		return firewall.Judged(o.name != "--invert")
	case "iprange":
		first, last, _ := strings.Cut(arg, "-")
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		a := map[string]netip.Addr{"--src-range": p.From.Addr, "--dst-range": p.Endpoint.Addr()}[o.name]
		if err1 == nil && err2 == nil && a.IsValid() {
			return firewall.Judged(from.Compare(a) <= 0 && a.Compare(to) <= 0)
		}
	}
	return firewall.Maybe
}

// interfaceIs compares an interface with a name, which may end in + for any end.
func interfaceIs(i proxy.Interface, name string) firewall.Ternary {
	if i.Name == "" {
		return firewall.Maybe
	}
	if begin, any := strings.CutSuffix(name, "+"); any {
		return firewall.Judged(strings.HasPrefix(i.Name, begin))
	}
	return firewall.Judged(i.Name == name)
}

// conntrack judges options about the connection, which is new and went through DNAT.
func (j *judge) conntrack(o *option) firewall.Ternary {
	if j.untracked {
		return firewall.Maybe
	}
	switch o.name {
	case "--ctstate", "--state":
		states := strings.Split(o.arg(), ",")
		if j.early {
			return firewall.Judged(slices.Contains(states, "NEW"))
		}
		return firewall.Judged(slices.Contains(states, "NEW") || slices.Contains(states, "DNAT"))
	case "--ctdir":
		return firewall.Judged(o.arg() == "ORIGINAL")
	case "--ctorigdst":
		if prefix, err := parsePrefixOrAddr(o.arg()); err == nil {
			return firewall.Judged(prefix.Contains(j.p.To.Addr))
		}
	case "--ctorigdstport":
		return portIn(o.arg(), j.p.To.Port)
	case "--ctproto":
		return firewall.Judged(o.arg() == strconv.Itoa(int(j.p.To.Protocol)) || o.arg() == protocolName(j.p.To.Protocol))
	}
	return firewall.Maybe
}

func parsePrefixOrAddr(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		return host(a), err
	}
	return netip.ParsePrefix(s)
}

// port judges options about ports, and TCP's flags: the first packet has SYN alone.
func (j *judge) port(o *option) firewall.Ternary {
	switch o.name {
	case "--dport", "--dports":
		return portIn(o.arg(), j.p.Endpoint.Port())
	case "--syn":
		return firewall.Yes
	case "--tcp-flags":
		if len(o.args) == 2 {
			wants := strings.Split(o.args[1], ",")
			looks := strings.Split(o.args[0], ",")
			has := slices.Contains(looks, "SYN") || slices.Contains(looks, "ALL")
			return firewall.Judged(has && len(wants) == 1 && wants[0] == "SYN" || !has && len(wants) == 1 && wants[0] == "NONE")
		}
	}
	return firewall.Maybe
}

// portIn tells whether a port is in a list like 80,443,8000:8100.
func portIn(list string, port uint16) firewall.Ternary {
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, ranged := strings.Cut(part, ":")
		if !ranged {
			hi = lo
		}
		first, err1 := strconv.ParseUint(lo, 10, 16)
		last, err2 := strconv.ParseUint(hi, 10, 16)
		if err1 != nil || err2 != nil {
			return firewall.Maybe
		}
		if uint16(first) <= port && port <= uint16(last) {
			return firewall.Yes
		}
	}
	return firewall.No
}

// set notes which bits of marks a rule may change.
func (m *marks) set(r *parsedRule) {
	for i := range r.targetOptions {
		o := &r.targetOptions[i]
		value, mask, err := parseMark(o.arg())
		switch {
		case r.target == "MARK" && o.name == "--set-xmark": // the mask's bits are cleared, and the value's turned over
			if err != nil {
				value, mask = 0, ^uint32(0)
			}
			m.unknown |= m.packet&^mask ^ value ^ m.packet
		case r.target == "CONNMARK" && o.name == "--set-xmark":
			m.connection = true
		case r.target == "CONNMARK" && o.name == "--save-mark":
			m.connection = m.connection || m.packet != 0 || m.unknown != 0
		case r.target == "CONNMARK" && o.name == "--restore-mark" && m.connection:
			m.unknown = ^uint32(0)
		}
	}
}

// parseMark reads VALUE/MASK.
func parseMark(s string) (value, mask uint32, err error) {
	first, second, masked := strings.Cut(s, "/")
	v, err := strconv.ParseUint(first, 0, 32)
	m := uint64(1<<32 - 1)
	if err == nil && masked {
		m, err = strconv.ParseUint(second, 0, 32)
	}
	return uint32(v), uint32(m), err
}
