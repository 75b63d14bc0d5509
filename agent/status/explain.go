package status

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
)

// Question is what `sluice explain` is asked.
type Question struct {
	// Target is NAMESPACE/SERVICE[:PORT], SERVICE[:PORT], ADDRESS:PORT or ADDRESS.
	Target string
	// From is who sends: pod, host, outside or an address. Empty is pod for a ClusterIP, else outside.
	From string
	// Protocol is tcp, udp or sctp; empty is whatever the target has.
	Protocol string
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
	// From says who sends.
	From string `json:"from"`
	// Verdict is forwarded, rejected, dropped or untouched, and Reason says why.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Affinity is about session affinity; empty without.
	Affinity string `json:"affinity,omitempty"`
	// Endpoints are those that a new connection goes to, NotUsed the others of that port.
	Endpoints []PathEndpoint `json:"endpoints,omitempty"`
	NotUsed   []PathEndpoint `json:"notUsed,omitempty"`
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
		fmt.Fprintf(t, "  from %s\n", p.From)
		fmt.Fprintf(t, "  %s: %s\n", p.Verdict, p.Reason)
		if p.Affinity != "" {
			fmt.Fprintf(t, "  %s\n", p.Affinity)
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
	}
	return t.Flush()
}
