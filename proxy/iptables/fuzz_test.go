package iptables

import (
	"bytes"
	"testing"

	"sluice/proxy"
	"sluice/proxy/firewall"
)

// FuzzSave reads what iptables-save could print, takes rules to pieces, and follows a packet through them, as ours and as those of
// another program. Nothing of that may fail in another way than by an error.
func FuzzSave(f *testing.F) {
	f.Add([]byte("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\nCOMMIT\n"))
	f.Add([]byte("*nat\n:SLUICE-SERVICES - [0:0]\n-A PREROUTING -m comment --comment \"sluice: Services\" -j SLUICE-SERVICES\n" +
		"-A SLUICE-SERVICES -d 10.43.0.1/32 -p tcp -m tcp --dport 80 -m comment --comment \"shop/web\" -g SLUICE-SVC-a\n" +
		"-A SLUICE-SVC-a -p tcp -m recent --update --seconds 60 --reap --name x --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.42.0.5:80\n" +
		"-A SLUICE-SVC-a -p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.42.0.5:80\nCOMMIT\n"))
	f.Add([]byte("# Table `nat' is incompatible, use 'nft' tool.\n"))
	f.Add([]byte("*mangle\n-A FORWARD ! -i lo -p tcp -m tcp ! --tcp-flags FIN,SYN SYN -m multiport --dports 1,2:3 -m mark --mark 0x1/0x2 -m iprange --dst-range 1.2.3.4-5 -j MARK --set-xmark 0x1/0x1\n-A x -g x\nCOMMIT\n"))
	packet := proxy.Packet{From: passage.From, To: passage.To}
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &live{}
		for i := range l.chains {
			l.chains[i] = map[string][]string{}
		}
		table := &firewallTable{rules: map[string][]firewallRule{}, drops: map[string]bool{"FORWARD": true}}
		_ = Listing{Rule: func(chain, line []byte) {
			_ = Target(line)
			if len(line) > 1<<12 {
				return
			}
			r, ok := parseRule(string(line))
			if !ok {
				t.Fatalf("no rule: %q", line)
			}
			table.rules[r.chain] = append(table.rules[r.chain], firewallRule{r, string(line)})
			for i := range l.chains {
				l.chains[i][string(chain)] = append(l.chains[i][string(chain)], string(line))
			}
			_, _, _ = parseLeaf(withoutComment(string(line)))
			(&kernelChain{}).parse(string(chain), string(line))
		}}.Read(bytes.NewReader(text), "iptables-save", "")
		steps := 0
		for _, lines := range l.chains[nat] {
			steps += len(lines)
		}
		if steps > 12 { // a chain of random choices has as many ways as it likes
			return
		}
		tr := tracer{proxy.IPv4, l}
		_, _ = tr.Trace(t.Context(), packet)
		_, _ = firewall.Judge(&judge{table: table, p: &passage, marks: &marks{}}, firewall.Base{Table: "t", Chain: "FORWARD", Drops: true})
	})
}
