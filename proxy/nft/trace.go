package nft

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Tracer implements proxy.Tracer for rules that are planned, or that the kernel has. It follows those of our table only.
type Tracer struct {
	family proxy.Family
	defs   [setCount]setDef
	rules  rulebook
	// chains are the base chains of the hooks, in the order in which the kernel asks them.
	chains map[uint32][]baseChain
}

var _ proxy.Tracer = (*Tracer)(nil)

type baseChain struct {
	name string
	kernelChain
}

// rulebook is where a Tracer looks rules and elements up.
type rulebook interface {
	// chain returns a chain's rules; a chain that does not exist has none.
	chain(name string) ([]parsedRule, error)
	// element looks for the element that a key is or, in a set of ranges, is in.
	element(k elemKey) (answer, error)
	close() error
}

func newTracer(f proxy.Family, rules rulebook, chains map[string]kernelChain) *Tracer {
	t := &Tracer{family: f, defs: setDefs(f), rules: rules, chains: map[uint32][]baseChain{}}
	for name, c := range chains {
		if c.typ != "" {
			t.chains[c.num] = append(t.chains[c.num], baseChain{name, c})
		}
	}
	for _, list := range t.chains {
		slices.SortFunc(list, func(a, b baseChain) int { return int(a.priority) - int(b.priority) })
	}
	return t
}

// Close ends what the Tracer asks the kernel by.
func (t *Tracer) Close() error { return t.rules.close() }

// Trace implements proxy.Tracer.
func (t *Tracer) Trace(ctx context.Context, p proxy.Packet) ([]proxy.Outcome, error) {
	asked := map[elemKey]answer{}
	return proxy.Outcomes(ctx, func(choices *proxy.Choices) (proxy.Outcome, error) {
		m := machine{t: t, p: p, to: p.To, asked: asked, choices: choices}
		return m.run()
	})
}

// answer is what a set said about a key.
type answer struct {
	is      elemKey
	value   elemValue
	expires time.Duration
	found   bool
}

// machine is the way of one packet through the hooks.
type machine struct {
	t       *Tracer
	p       proxy.Packet
	to      proxy.Frontend // the destination, as DNAT changed it
	nat     bool           // a DNAT changed it
	asked   map[elemKey]answer
	choices *proxy.Choices
	hook    uint32
	// priority is the packet's.
	priority uint32
	// added are the elements that the packet adds to sets by itself. A source that is not known is one, too.
	added map[elemKey]bool

	registers
	depth   int
	outcome proxy.Outcome
}

// end says how a chain goes on.
type end uint8

const (
	goesOn   end = iota // where it was jumped from
	accepted            // by this hook's chain
	stopped             // dropped or rejected
)

// maxDepth is the kernel's limit to jumps (NFT_JUMP_STACK_SIZE of net/netfilter/nf_tables.h).
const maxDepth = 16

func (m *machine) run() (proxy.Outcome, error) {
	m.added = map[elemKey]bool{}
	hooks := []uint32{unix.NF_INET_PRE_ROUTING}
	if m.p.From.Local {
		hooks = []uint32{unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING}
	}
	for i := 0; i < len(hooks); i++ {
		m.hook = hooks[i]
		if stop, err := m.pass(); stop || err != nil {
			return m.outcome, err
		}
		if m.hook == unix.NF_INET_PRE_ROUTING {
			hooks = append(hooks, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING)
			if m.p.OnNode != nil && m.p.OnNode(m.to.Addr) {
				hooks = append(hooks[:1], unix.NF_INET_LOCAL_IN)
			}
		}
	}
	if m.nat {
		m.outcome.Verdict, m.outcome.Endpoint = proxy.Forwarded, netip.AddrPortFrom(m.to.Addr, m.to.Port)
	}
	return m.outcome, nil
}

// pass takes the packet through the base chains of a hook.
func (m *machine) pass() (stop bool, err error) {
	for _, c := range m.t.chains[m.hook] {
		if c.typ == "nat" && m.nat && m.hook != unix.NF_INET_POST_ROUTING && m.hook != unix.NF_INET_LOCAL_IN {
			continue // the destination is changed once
		}
		e, err := m.chain(c.name)
		if err != nil {
			return false, err
		}
		if e != accepted && e != stopped && c.drop {
			m.outcome.Verdict, e = proxy.Dropped, stopped
			m.step(c.name, "policy drop")
		}
		if e == stopped {
			return true, nil
		}
	}
	return false, nil
}

func (m *machine) step(chain, rule string) {
	m.outcome.Steps = append(m.outcome.Steps, proxy.Step{Where: in(m.t.family, chain), Rule: rule})
}

// chain takes the packet through the rules of one chain.
func (m *machine) chain(name string) (end, error) {
	if m.depth++; m.depth > maxDepth {
		return stopped, fmt.Errorf("chain %s: more than %d jumps", in(m.t.family, name), maxDepth)
	}
	defer func() { m.depth-- }()
	rules, err := m.t.rules.chain(name)
	if err != nil {
		return stopped, err
	}
	for i := range rules {
		found := map[int]string{}
		v, matched, err := m.rule(&rules[i], found)
		if err != nil {
			return stopped, fmt.Errorf("chain %s cannot be followed: rule %q: %w", in(m.t.family, name), ruleText(rules[i], nil), err)
		}
		if !matched {
			continue
		}
		m.step(name, ruleText(rules[i], found))
		switch v.code {
		case codeContinue:
		case codeReturn:
			return goesOn, nil
		case nfAccept:
			return accepted, nil
		case nfDrop:
			if m.outcome.Verdict != proxy.Rejected {
				m.outcome.Verdict = proxy.Dropped
			}
			return stopped, nil
		case codeJump, codeGoto:
			led := len(m.outcome.Steps)
			e, err := m.chain(v.chain)
			if err != nil || e == accepted || e == stopped {
				return e, err
			}
			if v.code == codeJump && len(m.outcome.Steps) == led {
				m.outcome.Steps = m.outcome.Steps[:led-1] // nothing there was about the packet
			}
			if v.code == codeGoto {
				return goesOn, nil
			}
		default:
			return stopped, fmt.Errorf("chain %s cannot be followed: rule %q", in(m.t.family, name), ruleText(rules[i], nil))
		}
	}
	return goesOn, nil
}
