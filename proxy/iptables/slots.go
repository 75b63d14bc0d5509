package iptables

import (
	"context"
	"net/netip"
	"strconv"
	"strings"

	"sluice/proxy"
)

// kernelSlots are the endpoints of a frontend that the kernel has.
type kernelSlots struct{ pool, local []netip.AddrPort }

// kernelChain is what a chain of a pool leads to.
type kernelChain struct {
	slots  []netip.AddrPort
	next   []string // chains of the same pool, in order
	inside string   // the chain for pods and this node
	ranges string   // the chain behind source ranges
}

// readSlots reads the endpoints of all frontends. It is empty if there are no rules.
func (w *Writer) readSlots(ctx context.Context) (map[proxy.Frontend]kernelSlots, error) {
	targets := map[proxy.Frontend]string{}
	chains := map[string]*kernelChain{}
	err := w.read(ctx, nat, reader{rule: func(name, line []byte) {
		text := withoutComment(string(line))
		if f, target, ok := parseLeaf(text); ok {
			targets[f] = target
			return
		}
		c := chains[string(name)]
		if c == nil {
			c = &kernelChain{}
			chains[string(name)] = c
		}
		c.parse(string(name), text)
	}})
	if err != nil {
		return nil, err
	}
	all := make(map[proxy.Frontend]kernelSlots, len(targets))
	for f, target := range targets {
		c := chains[target]
		if c != nil && c.ranges != "" {
			target = c.ranges
			c = chains[target]
		}
		switch {
		case c == nil:
		case c.inside != "":
			all[f] = kernelSlots{pool: slotsOf(chains, c.inside, maxLevels), local: slotsOf(chains, target, maxLevels)}
		default:
			all[f] = kernelSlots{pool: slotsOf(chains, target, maxLevels)}
		}
	}
	return all, nil
}

// maxLevels bounds the chains of one pool below each other, whatever another program made of them.
const maxLevels = 8

func slotsOf(chains map[string]*kernelChain, name string, levels int) []netip.AddrPort {
	c := chains[name]
	if c == nil || levels == 0 {
		return nil
	}
	slots := c.slots
	for _, next := range c.next {
		slots = append(slots, slotsOf(chains, next, levels-1)...)
	}
	return slots
}

// parse takes in a rule of a chain that holds a Service port.
func (c *kernelChain) parse(name, line string) {
	if to, ok := argument(line, " --to-destination "); ok {
		if strings.Contains(line, " --update ") {
			return // the way of a client that was here before; the slot has a rule of its own
		}
		if e, err := netip.ParseAddrPort(to); err == nil {
			c.slots = append(c.slots, e)
		}
		return
	}
	to, ok := argument(line, " -g ")
	switch {
	case !ok:
	case strings.HasPrefix(name, prefix+rangesChain):
		c.ranges = to
	case strings.HasPrefix(to, prefix+insideChain) && !strings.HasPrefix(name, prefix+insideChain):
		c.inside = to
	default:
		c.next = append(c.next, to)
	}
}

// parseLeaf reads the rule that leads a frontend to its chain.
func parseLeaf(line string) (f proxy.Frontend, target string, ok bool) {
	to, hasAddr := argument(line, " -d ")
	protocol, hasProtocol := argument(line, " -p ")
	port, hasPort := argument(line, " --dport ")
	target, hasTarget := argument(line, " -g ")
	if !hasAddr || !hasProtocol || !hasPort || !hasTarget {
		return f, "", false
	}
	p, err := netip.ParsePrefix(to)
	number, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil {
		return f, "", false // a step to a range of ports
	}
	for _, known := range []proxy.Protocol{proxy.TCP, proxy.UDP, proxy.SCTP} {
		if protocol == protocolName(known) {
			return proxy.Frontend{Addr: p.Addr(), Port: uint16(number), Protocol: known}, target, true
		}
	}
	return f, "", false
}

// argument returns the word behind an option.
func argument(line, option string) (string, bool) {
	_, rest, ok := strings.Cut(line, option)
	word, _, _ := strings.Cut(rest, " ")
	return word, ok
}
