package explain

import (
	"errors"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/proxy"
)

// TestBlock: what firewalls do to some endpoints, or to all, is said once.
func TestBlock(t *testing.T) {
	answer := Answer{Path: status.Path{To: []string{"10.43.0.1:80/TCP"}}, Passages: []proxy.Passage{{Endpoint: first}, {Endpoint: second}}}
	all := proxy.Block{Chain: "iptables filter FORWARD", Rule: "policy drop", Sure: true}
	one := proxy.Block{Chain: "nftables inet fw forward", Rule: "limit drop"}
	for _, tt := range []struct {
		name  string
		judge func(proxy.Passage) ([]proxy.Block, error)
		want  string
	}{
		{"none", func(proxy.Passage) ([]proxy.Block, error) { return nil, nil }, ""},
		{"all", func(proxy.Passage) ([]proxy.Block, error) { return []proxy.Block{all}, nil },
			"A FIREWALL DROPS IT: iptables filter FORWARD: policy drop\n"},
		{"one", func(p proxy.Passage) ([]proxy.Block, error) {
			if p.Endpoint == first {
				return []proxy.Block{one}, nil
			}
			return []proxy.Block{all}, nil
		}, "a firewall may drop it on the way to 10.42.0.5:8080: nftables inet fw forward: limit drop\n" +
			"  A FIREWALL DROPS IT on the way to 10.42.1.5:8080: iptables filter FORWARD: policy drop\n"},
		{"a rule that speaks to the terminal", func(proxy.Passage) ([]proxy.Block, error) {
			return []proxy.Block{{Chain: "iptables filter FORWARD", Rule: "--comment \"\x1b[2J\" -j DROP", Sure: true}}, nil
		}, "A FIREWALL DROPS IT: iptables filter FORWARD: --comment \"\ufffd[2J\" -j DROP\n"},
		{"an error", func(proxy.Passage) ([]proxy.Block, error) { return nil, errors.New("no permission") },
			"whether a firewall drops it is not known: no permission\n"},
	} {
		var b strings.Builder
		if err := status.WritePaths(&b, Block([]Answer{answer}, tt.judge)); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasSuffix(got, tt.want) || strings.Contains(got, "irewall") != (tt.want != "") && !strings.Contains(got, "FIREWALL") {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}
