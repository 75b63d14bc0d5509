package iptables

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/proxy"
)

// ternary is what is known of a condition.
type ternary uint8

const (
	no ternary = iota
	maybe
	yes
)

func judged(b bool) ternary {
	if b {
		return yes
	}
	return no
}

// matches tells whether a packet meets all conditions of a rule.
func (j *judge) matches(r *parsedRule) ternary {
	all := yes
	module := ""
	for i := range r.options {
		o := &r.options[i]
		if o.name == "-m" {
			if module = o.arg(); !slices.Contains(knownModules, module) {
				all = maybe // what it asks for is not looked at
			}
			continue
		}
		m := j.option(module, o)
		if o.negated {
			m = yes - m
		}
		if all = min(all, m); all == no {
			return no
		}
	}
	return all
}

// knownModules are the matches whose options are judged. A match without options, like tcp, lets all packets through.
var knownModules = []string{"comment", "conntrack", "state", "tcp", "udp", "sctp", "multiport", "mark", "addrtype", "iprange"}

func (j *judge) option(module string, o *option) ternary {
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
			return maybe
		}
		return judged(prefix.Contains(a))
	case "-p":
		return judged(arg == "all" || arg == protocolName(p.To.Protocol) || arg == strconv.Itoa(int(p.To.Protocol)))
	case "-i":
		return interfaceIs(p.In, arg)
	case "-o":
		return interfaceIs(p.Out, arg)
	}
	switch module {
	case "comment":
		return yes
	case "conntrack", "state":
		return j.conntrack(o)
	case "tcp", "udp", "sctp", "multiport":
		return j.port(o)
	case "mark":
		value, mask, err := parseMark(arg)
		if o.name != "--mark" || err != nil {
			return maybe
		}
		return judged(j.mark&mask == value)
	case "addrtype":
		local := map[string]bool{"--src-type": p.From.Local, "--dst-type": p.OnNode}
		is, known := local[o.name]
		switch {
		case known && arg == "LOCAL":
			return judged(is)
		case known && arg == "UNICAST":
			return judged(!is)
		case known && (arg == "BROADCAST" || arg == "MULTICAST"):
			return no
		}
	case "iprange":
		first, last, _ := strings.Cut(arg, "-")
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		a := map[string]netip.Addr{"--src-range": p.From.Addr, "--dst-range": p.Endpoint.Addr()}[o.name]
		if err1 == nil && err2 == nil && a.IsValid() {
			return judged(from.Compare(a) <= 0 && a.Compare(to) <= 0)
		}
	}
	return maybe
}

// interfaceIs compares an interface with a name, which may end in + for any end.
func interfaceIs(i proxy.Interface, name string) ternary {
	if i.Name == "" {
		return maybe
	}
	if begin, any := strings.CutSuffix(name, "+"); any {
		return judged(strings.HasPrefix(i.Name, begin))
	}
	return judged(i.Name == name)
}

// conntrack judges options about the connection, which is new and went through DNAT.
func (j *judge) conntrack(o *option) ternary {
	switch o.name {
	case "--ctstate", "--state":
		states := strings.Split(o.arg(), ",")
		return judged(slices.Contains(states, "NEW") || slices.Contains(states, "DNAT"))
	case "--ctdir":
		return judged(o.arg() == "ORIGINAL")
	case "--ctorigdst":
		if prefix, err := parsePrefixOrAddr(o.arg()); err == nil {
			return judged(prefix.Contains(j.p.To.Addr))
		}
	case "--ctorigdstport":
		return portIn(o.arg(), j.p.To.Port)
	case "--ctproto":
		return judged(o.arg() == strconv.Itoa(int(j.p.To.Protocol)) || o.arg() == protocolName(j.p.To.Protocol))
	}
	return maybe
}

func parsePrefixOrAddr(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		return host(a), err
	}
	return netip.ParsePrefix(s)
}

// port judges options about ports, and TCP's flags: the first packet has SYN alone.
func (j *judge) port(o *option) ternary {
	switch o.name {
	case "--dport", "--dports":
		return portIn(o.arg(), j.p.Endpoint.Port())
	case "--syn":
		return yes
	case "--tcp-flags":
		if len(o.args) == 2 {
			wants := strings.Split(o.args[1], ",")
			looks := strings.Split(o.args[0], ",")
			has := slices.Contains(looks, "SYN") || slices.Contains(looks, "ALL")
			return judged(has && len(wants) == 1 && wants[0] == "SYN" || !has && len(wants) == 1 && wants[0] == "NONE")
		}
	}
	return maybe
}

// portIn tells whether a port is in a list like 80,443,8000:8100.
func portIn(list string, port uint16) ternary {
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, ranged := strings.Cut(part, ":")
		if !ranged {
			hi = lo
		}
		first, err1 := strconv.ParseUint(lo, 10, 16)
		last, err2 := strconv.ParseUint(hi, 10, 16)
		if err1 != nil || err2 != nil {
			return maybe
		}
		if uint16(first) <= port && port <= uint16(last) {
			return yes
		}
	}
	return no
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
