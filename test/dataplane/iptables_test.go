package dataplane

import (
	"context"
	"strings"
	"testing"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/test/lab"
)

func newIPTables(l *lab.Lab, f proxy.Family, o iptables.Options) (subject, error) {
	o.Family, o.NetNS = f, l.Node.FD()
	var err error
	if o.Installed, err = iptables.Variants(context.Background(), o); err != nil {
		return nil, err
	}
	return newWriterSubject(l, f, writerKind{
		open:      func() (proxy.Writer, error) { return iptables.New(o) },
		leftovers: func(ctx context.Context) ([]string, error) { return iptablesLeftovers(ctx, l, f, o.Variant) },
		compare: func(ctx context.Context, s *proxy.State, differs func(proxy.Difference)) error {
			return iptables.Compare(ctx, o, s, differs)
		},
		tracers: map[string]openTracer{
			"planned rules": func(_ context.Context, s *proxy.State) (proxy.Tracer, func(), error) {
				return iptables.Planned(s), func() {}, nil
			},
			"live rules": func(ctx context.Context, _ *proxy.State) (proxy.Tracer, func(), error) {
				t, err := iptables.Live(ctx, o)
				return t, func() {}, err
			},
		},
	})
}

// iptablesCommand is the command of a variant for a family.
func iptablesCommand(f proxy.Family, variant string) string {
	if f == proxy.IPv6 {
		return strings.Replace(variant, "iptables", "ip6tables", 1)
	}
	return variant
}

// needIPTables skips a test where a variant is not installed, or the kernel does not have it.
func needIPTables(t *testing.T, l *lab.Lab, f proxy.Family, variant string) {
	t.Helper()
	if _, err := l.Node.Run(t.Context(), "", iptablesCommand(f, variant), "-t", "nat", "-S"); err != nil {
		t.Skipf("this machine cannot run %s: %v", variant, err)
	}
}

// iptablesLeftovers lists the chains, and the rules of chains that lead on, that there are only for objects.
func iptablesLeftovers(ctx context.Context, l *lab.Lab, f proxy.Family, variant string) ([]string, error) {
	always := map[string]bool{}
	for _, name := range []string{"SERVICES", "POSTROUTING", "MASQUERADE", "OFF-CLUSTER", "HAIRPIN", "ANSWERS", "NO-ENDPOINTS", "CLUSTER-IPS", "REJECT"} {
		always["SLUICE-"+name] = true
	}
	var left []string
	for _, table := range []string{"nat", "filter"} {
		out, err := l.Node.Run(ctx, "", iptablesCommand(f, variant)+"-save", "-t", table)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			words := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, ":SLUICE-") && !always[words[0][1:]]:
				left = append(left, line)
			case strings.HasPrefix(line, "-A SLUICE-SERVICES"), strings.HasPrefix(line, "-A SLUICE-HAIRPIN"),
				strings.HasPrefix(line, "-A SLUICE-NO-ENDPOINTS"), strings.HasPrefix(line, "-A SLUICE-CLUSTER-IPS"):
				left = append(left, line)
			}
		}
	}
	return left, nil
}
