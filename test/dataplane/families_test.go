package dataplane

import (
	"testing"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

// TestFamiliesAreIndependent has both families at work on one node, and ends each while the other goes on.
func TestFamiliesAreIndependent(t *testing.T) {
	l := newLab(t, lab.Options{})
	t.Run("nft", func(t *testing.T) { testFamilies(t, l, subjects["nft"]) })
	t.Run(iptables.NFT, func(t *testing.T) {
		needIPTables(t, l, proxy.IPv4, iptables.NFT)
		testFamilies(t, l, subjects[iptables.NFT])
	})
}

func testFamilies(t *testing.T, l *lab.Lab, start func(*lab.Lab, proxy.Family) (subject, error)) {
	for _, ends := range proxy.Families {
		running := map[proxy.Family]*run{}
		for _, f := range proxy.Families {
			s, err := start(l, f)
			if err != nil {
				t.Fatal(err)
			}
			r := &run{t: t, ctx: t.Context(), lab: l, family: f, names: l.Names(f), subject: s, config: defaultConfig(l, f), present: map[change]bool{}}
			r.change("", allKinds+endpointsOf("pod2", "far1"))
			running[f] = r
		}
		goesOn := `
pod1    tcp,udp vip1:80    => pod2:8080 far1:8080 from client
outside tcp,udp node:30080 => pod2:8080 far1:8080 from masqueraded
outside tcp     lb1:80     => pod2:8080 far1:8080 from masqueraded
`
		for _, r := range running {
			r.probe(goesOn)
		}
		for f, r := range running {
			if f == ends {
				r.must(r.subject.Close())
				r.forgetFlows()
				r.probe(`
pod1    tcp vip1:80    => unreachable
outside tcp node:30080 => refused
`)
			}
		}
		for f, r := range running {
			if f != ends {
				r.probe(goesOn)
				r.change("", endpointsOf("pod3"))
				r.probe("pod1 tcp,udp vip1:80 => pod3:8080 from client")
				r.must(r.subject.Close())
			}
		}
	}
}

// TestTableStaysReserved checks that other programs cannot remove the table, before and after a restart, where the
// kernel can reserve one.
func TestTableStaysReserved(t *testing.T) {
	l := newLab(t, lab.Options{})
	s, err := newNFT(l, proxy.IPv4, nft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &run{t: t, ctx: t.Context(), lab: l, family: proxy.IPv4, names: l.Names(proxy.IPv4), subject: s, config: defaultConfig(l, proxy.IPv4), present: map[change]bool{}}
	r.change("", allKinds+endpointsOf("pod2"))
	r.command("nft", "flush", "ruleset")
	if out := r.command("nft", "list", "tables"); out == "" {
		t.Skip("this kernel cannot reserve a table (6.9 and later can)")
	}
	r.probe("pod1 tcp vip1:80 => pod2:8080 from client")
	r.must(s.Restart(t.Context()))
	r.command("nft", "flush", "ruleset")
	r.probe("pod1 tcp vip1:80 => pod2:8080 from client")
}
