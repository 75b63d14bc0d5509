package nft

import (
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// This machine's kernel has all that the other tests of this package need.
func TestProbe(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		begun := time.Now()
		trials, err := Probe(Options{Family: f.Family, NetNS: n.FD()})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v", time.Since(begun))
		for _, trial := range trials {
			if trial.Err != nil && !trial.Optional {
				t.Error(trial)
			}
		}
		if left := n.Must(t, "nft", "list", "ruleset"); left != "" {
			t.Errorf("Probe left\n%s", left)
		}
	})
}

// Each part must be right by itself, too, or a kernel that lacks another would be said to lack it.
func TestProbeSingly(t *testing.T) {
	eachFamily(t, func(t *testing.T, f fixture, n *lab.Namespace) {
		p := newTestProber(t, f.Family, n)
		for _, trial := range probeTrials(f.Family) {
			if err := p.attempt(trial); err != nil && !trial.Optional {
				t.Errorf("%s: %v", trial.Name, err)
			}
		}
	})
}

// A kernel that lacks a part refuses the whole, and the part is named.
func TestProbeNamesWhatFails(t *testing.T) {
	n := lab.NewTestNamespace(t)
	p := newTestProber(t, proxy.IPv4, n)
	p.rules.settings.Detection.Interface = strings.Repeat("x", 300) // no rule can compare so much
	p.rules.settings.Detection.Mode = proxy.DetectInterfaceNamePrefix
	trials, err := p.run()
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, trial := range trials {
		if trial.Err != nil && !trial.Optional {
			failed = append(failed, trial.Name)
		}
	}
	if len(failed) != 1 || !strings.Contains(failed[0], "meta") {
		t.Errorf("failed: %q, want the one with the interface", failed)
	}
}

func newTestProber(t *testing.T, f proxy.Family, n *lab.Namespace) *prober {
	t.Helper()
	c, err := dial(n.FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return newProber(Options{Family: f, NetNS: n.FD()}, c)
}
