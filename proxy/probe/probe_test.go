package probe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// This machine's kernel and iptables have all that the other tests need.
func TestRun(t *testing.T) {
	begun := time.Now()
	r := Run(t.Context(), Options{Mode: proxy.ModeAuto})
	t.Logf("auto: %v", time.Since(begun))
	if chosen, why, err := r.Choose(proxy.ModeAuto); chosen != proxy.ModeNFTables || err != nil {
		t.Errorf("Choose(auto) = %q, %q, %v", chosen, why, err)
	}
	if len(r.IPTables) > 0 {
		t.Error("iptables was tried, although nftables has everything")
	}
	begun = time.Now()
	r = Run(t.Context(), Options{})
	t.Logf("both: %v", time.Since(begun))
	t.Logf("tried in %s", r.Where)
	if len(r.IPTables) == 0 {
		t.Skip("no iptables is installed here (package iptables)")
	}
	for _, s := range append(r.IPTables, *r.NFTables) {
		if !s.complete() {
			t.Errorf("%s: %s; %v", s.Name, s.Err, s.Missing())
		}
		if len(s.Features) < 20 {
			t.Errorf("%s: only %d features were tried", s.Name, len(s.Features))
		}
	}
	if chosen, why, err := r.Choose(proxy.ModeIPTables); chosen != proxy.ModeIPTables || err != nil {
		t.Errorf("Choose(iptables) = %q, %q, %v", chosen, why, err)
	}
}

// No thread stays in the namespace that was thrown away.
func TestNamespaceIsLeft(t *testing.T) {
	home, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		Run(t.Context(), Options{})
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	for _, path := range threads {
		if ns, err := os.Readlink(path); err == nil && ns != home {
			t.Errorf("%s is %s, want %s", path, ns, home)
		}
	}
}

// Where no namespace can be made, nothing is left in the one that is there.
func TestInThisNamespace(t *testing.T) {
	n := lab.NewTestNamespace(t)
	n.Must(t, "nft", "add table ip mine; add chain ip mine c")
	var nftables *Set
	sets := map[string]Set{}
	err := n.Do(func() error {
		nftables = tryNFTables(nil, proxy.Families[:])
		for _, v := range Variants(t.Context()) {
			sets[v.Name] = tryIPTables(t.Context(), nil, v, proxy.Families[:])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !nftables.complete() {
		t.Errorf("nftables: %s %v", nftables.Err, nftables.Missing())
	}
	if after := n.Must(t, "nft", "list", "tables"); !contains(after, "ip mine") || contains(after, "sluice") {
		t.Errorf("left\n%s", after)
	}
	for name, s := range sets {
		if !s.complete() {
			t.Errorf("%s: %s %v", name, s.Err, s.Missing())
		}
	}
	for _, v := range Variants(t.Context()) {
		for f, programs := range v.Programs {
			for _, table := range []string{"nat", "filter"} {
				if out := n.Must(t, programs.Save, "-t", table); contains(out, tryChain) {
					t.Errorf("%s (%v) left\n%s", v.Name, f, out)
				}
			}
		}
	}
}

// What iptables says of a match that does not exist is told as missing, with the others unharmed.
func TestMissingMatch(t *testing.T) {
	ns, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, v := range Variants(t.Context()) {
		for _, f := range proxy.Families {
			s := tester{ns: ns, restore: v.Programs[f].Restore}
			err := s.try(t.Context(), []match{{table: "nat", rule: "-m no-such-match"}})
			if err == nil || !contains(err.Error(), "Couldn't load") {
				t.Errorf("%s (%v): %v", v.Name, f, err)
			}
		}
	}
}
