package status

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"sluice/proxy"
)

// Question is what `sluice explain` is asked.
type Question struct {
	// Target is NAMESPACE/SERVICE[:PORT], SERVICE[:PORT], ADDRESS:PORT or ADDRESS.
	Target string
	// From is who sends: pod, host, outside or an address. Empty is pod for a ClusterIP, else outside.
	From string
	// Protocol is tcp, udp or sctp; empty is whatever the target has.
	Protocol string
	// Live asks the kernel's rules too, and says where they do something else than the planned ones.
	Live bool
}

// Check tells what is wrong with a question whatever the Services are.
func (q Question) Check() error {
	switch strings.ToLower(q.Protocol) {
	case "", "tcp", "udp", "sctp":
	default:
		return fmt.Errorf("protocol %q is none of tcp, udp and sctp", q.Protocol)
	}
	switch q.From {
	case "", "pod", "host", "outside":
		return nil
	}
	if _, err := netip.ParseAddr(q.From); err != nil {
		return fmt.Errorf("%q is no sender: it can be pod, host, outside or an address", q.From)
	}
	return nil
}

// QuestionError says what is wrong with a Question.
type QuestionError struct{ Text string }

func (e *QuestionError) Error() string { return e.Text }

// Path is what becomes of the connections to one frontend, or to several that are alike.
type Path struct {
	// To are the frontends, like 10.43.0.1:80/TCP.
	To []string `json:"to"`
	// Service is the Service's port, like shop/web:http, and Kind where its address comes from; both are empty if no Service has it.
	Service string `json:"service,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// Losers are the ports of other Services that claim one of these addresses, too, and do not have it.
	Losers []string `json:"losers,omitempty"`
	// From says who sends.
	From string `json:"from"`
	// Verdict is forwarded, rejected, dropped or untouched, and Reason says why.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Affinity is about session affinity; empty without. Remembered is the endpoint that the kernel keeps for this client; it is not
	// valid if there is none, or the client's address is not known.
	Affinity   string         `json:"affinity,omitempty"`
	Remembered netip.AddrPort `json:"remembered,omitzero"`
	// Endpoints are those that a new connection goes to, NotUsed the others of that port.
	Endpoints []PathEndpoint `json:"endpoints,omitempty"`
	NotUsed   []PathEndpoint `json:"notUsed,omitempty"`
	// Rules are those that do it, in the order in which a packet meets them: as planned, or with Question.Live as the kernel has them.
	Rules []PathRule `json:"rules,omitempty"`
	// Blocked are chains of other programs that end the packets' way behind the DNAT. BlockError says why they could not be judged.
	Blocked    []PathBlock `json:"blocked,omitempty"`
	BlockError string      `json:"blockError,omitempty"`
	// Kernel is what the kernel's rules do, with Question.Live.
	Kernel *KernelPath `json:"kernel,omitempty"`
}

// PathBlock is a chain of another program that ends a way.
type PathBlock struct {
	proxy.Block
	// To are the endpoints that are concerned; empty if all are.
	To []netip.AddrPort `json:"to,omitempty"`
}

// PathRule is a rule, with the element of a map or set that was looked up in it.
type PathRule struct {
	proxy.Step
	// To are the endpoints that it leads to; empty if it is part of every way.
	To []netip.AddrPort `json:"to,omitempty"`
}

// KernelPath compares what the kernel's rules do with what they should.
type KernelPath struct {
	// Differs says where they do something else; empty if they do what they should.
	Differs []string `json:"differs"`
}

// PathEndpoint is one endpoint of a Path.
type PathEndpoint struct {
	Address netip.AddrPort `json:"address"`
	// Node is where it is; empty if its slice does not say.
	Node string `json:"node,omitempty"`
	// Masqueraded says that it sees an address of this node in the place of the client's.
	Masqueraded bool `json:"masqueraded"`
	// Why says why it is masqueraded or not, or why it is not used.
	Why string `json:"why"`
}

// WritePaths writes paths for people.
func WritePaths(w io.Writer, paths []Path) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, p := range paths {
		if i > 0 {
			fmt.Fprintln(t)
		}
		what := "no Service"
		if p.Service != "" {
			what = p.Service + ", " + p.Kind
		}
		fmt.Fprintf(t, "%s (%s)\n", strings.Join(p.To, ", "), what)
		if len(p.Losers) > 0 {
			fmt.Fprintf(t, "  claimed in vain by %s: the older Service has it, or the one whose ClusterIP it is\n", joined(p.Losers, 3))
		}
		fmt.Fprintf(t, "  from %s\n", p.From)
		fmt.Fprintf(t, "  %s: %s\n", p.Verdict, p.Reason)
		if p.Affinity != "" {
			fmt.Fprintf(t, "  %s\n", p.Affinity)
		}
		if p.Remembered.IsValid() {
			fmt.Fprintf(t, "  this client is remembered: it goes to %v\n", p.Remembered)
		}
		for _, e := range p.Endpoints {
			source := "source kept: "
			if e.Masqueraded {
				source = "source replaced by this node's: "
			}
			fmt.Fprintf(t, "    %v\t%s\t%s\n", e.Address, e.Node, source+e.Why)
		}
		if len(p.NotUsed) > 0 {
			fmt.Fprintln(t, "  not to")
		}
		for _, e := range p.NotUsed {
			fmt.Fprintf(t, "    %v\t%s\t%s\n", e.Address, e.Node, e.Why)
		}
		writeRules(t, p.Rules)
		writeBlocks(t, &p)
		if p.Kernel == nil {
			continue
		}
		if len(p.Kernel.Differs) == 0 {
			fmt.Fprintln(t, "  the kernel's rules do just that")
		}
		for _, what := range p.Kernel.Differs {
			fmt.Fprintf(t, "  NOT SO IN THE KERNEL: %s\n", what)
		}
	}
	return t.Flush()
}

// writeBlocks writes what becomes of the packets behind the DNAT.
func writeBlocks(w io.Writer, p *Path) {
	for _, b := range p.Blocked {
		what := "  A FIREWALL DROPS IT"
		if !b.Sure {
			what = "  a firewall may drop it"
		}
		if len(b.To) > 0 {
			what += fmt.Sprintf(" on the way to %s", joined(b.To, 3))
		}
		fmt.Fprintf(w, "%s: %s: %s\n", what, Printable(b.Chain), Printable(b.Rule))
	}
	if p.BlockError != "" {
		fmt.Fprintf(w, "  whether a firewall drops it is not known: %s\n", p.BlockError)
	}
}

// joined lists the first of some addresses.
func joined[T any](list []T, most int) string {
	var words []string
	for _, a := range list[:min(len(list), most)] {
		words = append(words, fmt.Sprint(a))
	}
	if more := len(list) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// rulesAlike is how many rules of one chain a text shows; they differ in the endpoint only.
const rulesAlike = 5

// writeRules writes what does it: rules of one chain that are for one endpoint each are cut short.
func writeRules(w io.Writer, rules []PathRule) {
	if len(rules) > 0 {
		fmt.Fprintln(w, "  by")
	}
	alike := 0
	for i, r := range rules {
		if len(r.To) != 1 || i > 0 && rules[i-1].Where != r.Where {
			alike = 0
		}
		if len(r.To) == 1 {
			alike++
		}
		last := i+1 == len(rules) || len(rules[i+1].To) != 1 || rules[i+1].Where != r.Where
		if alike <= rulesAlike {
			fmt.Fprintf(w, "    %s\t%s\n", r.Where, r.Rule)
		} else if last {
			fmt.Fprintf(w, "    %s\tand %d more like it\n", r.Where, alike-rulesAlike)
		}
	}
}
