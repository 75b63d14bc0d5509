package iptables

import (
	"io"
	"strings"
	"testing"
)

// TestFailedLine reads what iptables-restore of several versions says about the line that failed.
func TestFailedLine(t *testing.T) {
	for stderr, want := range map[string]int{
		"iptables-restore: line 4 failed\n": 4,
		"iptables-nft-restore v1.8.9 (nf_tables): Chain 'NOPE' does not exist\nError occurred at line: 3\nTry `-h'":            3,
		"iptables-nft-restore v1.8.9 (nf_tables): \nline 5: RULE_APPEND failed (Invalid argument): rule in chain SLUICE-A\n\n": 5,
		"iptables-restore v1.8.9 (legacy): Couldn't load match `nope':No such file or directory\n\nError occurred at line: 12": 12,
	} {
		if got, ok := failedLine(stderr); !ok || got != want {
			t.Errorf("%q: got %d, %v, want %d", stderr, got, ok, want)
		}
	}
	if n, ok := failedLine("Another app is currently holding the xtables lock; waiting for it to exit"); ok {
		t.Errorf("a line %d, where none is named", n)
	}
}

func TestLineFinder(t *testing.T) {
	const input = "*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n"
	for number, want := range map[int]string{1: "*nat", 3: "-A A -j RETURN", 4: "COMMIT", 5: ""} {
		for size := 1; size < 8; size++ {
			f := lineFinder{number: number}
			for rest := input; len(rest) > 0; {
				n := min(size, len(rest))
				io.WriteString(&f, rest[:n])
				rest = rest[n:]
			}
			if got := string(f.line); got != want {
				t.Errorf("line %d, in pieces of %d: got %q, want %q", number, size, got, want)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	plain, legacy := Variant{Name: NFT, Path: "iptables", Version: "1.8.9"}, Variant{Name: Legacy, Path: "iptables-legacy", Version: "1.8.9"}
	hint := func(v Variant) Variant { v.Hint = true; return v }
	others := func(v Variant, n int) Variant { v.Others = n; return v }
	tests := []struct {
		name string
		list []Variant
		want string
		why  string
	}{
		{"one alone", []Variant{legacy}, Legacy, "choice"},
		{"nothing to go by", []Variant{plain, legacy}, NFT, "choice"},
		{"the kubelet's", []Variant{others(plain, 9), hint(legacy)}, Legacy, "kubelet"},
		{"chains of others", []Variant{plain, others(legacy, 3)}, Legacy, "3 chains"},
		{"more chains of others", []Variant{others(plain, 4), others(legacy, 3)}, NFT, "4 chains"},
	}
	for _, tt := range tests {
		got, why := choose(tt.list)
		if got.Name != tt.want || !strings.Contains(why, tt.why) {
			t.Errorf("%s: got %s, %q, want %s, %q", tt.name, got.Name, why, tt.want, tt.why)
		}
	}
}
