package probe

import (
	"os"
	"strings"
	"testing"

	"sluice/proxy"
)

// The tables of docs/kernel.md name all that is tried, and all that it takes.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/kernel.md")
	if err != nil {
		t.Fatal(err)
	}
	r := Run(t.Context(), Options{Mode: proxy.ModeNFTables})
	features := r.NFTables.Features
	for _, variant := range []string{"iptables-nft", "iptables-legacy"} {
		s := Set{Name: variant}
		for _, f := range proxy.Families {
			for _, m := range matches(f, variant) {
				s.add(f, m.name, m.config, m.module, m.optional, nil)
			}
		}
		features = append(features, s.Features...)
	}
	for _, f := range features {
		for _, part := range append([]string{f.Name, f.Module}, f.Config...) {
			if !strings.Contains(string(text), part) {
				t.Errorf("docs/kernel.md does not name %q of %v", part, f)
			}
		}
		for distribution, name := range f.Package {
			if !strings.Contains(string(text), name) || !strings.Contains(string(text), distribution) {
				t.Errorf("docs/kernel.md does not name the package %s of %s", name, distribution)
			}
		}
	}
}

// TestModulesAtBoot holds that all modules of nftables are loaded at boot, as the kernel takes long to load them singly.
func TestModulesAtBoot(t *testing.T) {
	text, err := os.ReadFile("../../systemd/sluice-modules.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Run(t.Context(), Options{Mode: proxy.ModeNFTables}).NFTables.Features {
		for module := range strings.FieldsSeq(f.Module) {
			if !strings.Contains(string(text), "\n"+module+"\n") {
				t.Errorf("systemd/sluice-modules.conf lacks %s, for %v", module, f)
			}
		}
	}
}
