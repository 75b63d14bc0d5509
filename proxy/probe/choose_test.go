package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
)

var contains = strings.Contains

// full is a Result of a machine that has everything. Only the answers are made up: what is tried is what Run tries.
func full(t *testing.T) Result {
	t.Helper()
	r := Run(t.Context(), Options{Mode: proxy.ModeNFTables})
	r.Host = Host{Distribution: RaspberryPiOS, Kernel: "6.12.1-rpi", Modules: true}
	for _, name := range []string{"iptables-nft", "iptables-legacy"} {
		s := Set{Name: name}
		for _, f := range proxy.Families {
			for _, m := range matches(f, name) {
				s.add(f, m.name, m.config, m.module, m.optional, nil)
			}
		}
		r.IPTables = append(r.IPTables, s)
	}
	return r
}

// without returns s without the features at the places.
func without(s Set, places ...int) Set {
	s.Features = append([]Feature(nil), s.Features...)
	for _, i := range places {
		s.Features[i].OK, s.Features[i].Error = false, "no such file or directory"
	}
	return s
}

// namesAll tells whether a text names what is missing and how it is mended.
func namesAll(t *testing.T, text string, f Feature) {
	t.Helper()
	for _, part := range append([]string{f.Name, f.Family, f.Module, "modprobe", "apt install " + f.Package[RaspberryPiOS]}, f.Config...) {
		if !contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

// Each single feature of nftables missing leads to iptables, unless nftables does without it.
func TestEachFeatureOfNFTablesMissing(t *testing.T) {
	r := full(t)
	all := *r.NFTables
	for i, f := range all.Features {
		t.Run(f.Name+" "+f.Family, func(t *testing.T) {
			r := r
			s := without(all, i)
			r.NFTables = &s
			chosen, why, err := r.Choose(proxy.ModeAuto)
			if f.Optional {
				if chosen != proxy.ModeNFTables || err != nil {
					t.Errorf("auto: %q, %q, %v", chosen, why, err)
				}
				return
			}
			if chosen != proxy.ModeIPTables || err != nil {
				t.Fatalf("auto: %q, %q, %v", chosen, why, err)
			}
			namesAll(t, why, f)

			// Alone, the other family is served all the same.
			r.IPTables = nil
			chosen, why, err = r.Choose(proxy.ModeAuto)
			if chosen != proxy.ModeNFTables || err != nil || !contains(why, f.Family+" is not served") {
				t.Errorf("auto, without iptables: %q, %q, %v", chosen, why, err)
			}
			chosen, why, err = r.Choose(proxy.ModeNFTables)
			if chosen != proxy.ModeNFTables || err != nil || !contains(why, f.Name) {
				t.Errorf("nftables: %q, %q, %v", chosen, why, err)
			}
		})
	}
}

// missingInBoth is a Set that lacks the feature of that name in every family.
func missingInBoth(s Set, name string) Set {
	var places []int
	for i, f := range s.Features {
		if f.Name == name {
			places = append(places, i)
		}
	}
	return without(s, places...)
}

// A forced mode that cannot serve any family is an error that names what is missing.
func TestForcedModeWithoutAFeature(t *testing.T) {
	r := full(t)
	for _, f := range r.NFTables.Features {
		if f.Optional {
			continue
		}
		r := r
		s := missingInBoth(*r.NFTables, f.Name)
		r.NFTables = &s
		_, _, err := r.Choose(proxy.ModeNFTables)
		if _, ok := errors.AsType[*MissingError](err); !ok {
			t.Errorf("without %s: %v", f.Name, err)
			continue
		}
		// Features are named once, with the options of both families.
		namesAll(t, err.Error(), Feature{Name: f.Name, Family: "IPv4 and IPv6", Module: f.Module, Config: nil, Package: f.Package})
	}
	for i, f := range r.IPTables[0].Features {
		if f.Optional || i >= len(r.IPTables[0].Features)/2 {
			continue
		}
		r := r
		r.IPTables = []Set{missingInBoth(r.IPTables[0], f.Name)}
		_, _, err := r.Choose(proxy.ModeIPTables)
		if _, ok := errors.AsType[*MissingError](err); !ok {
			t.Errorf("without %s: %v", f.Name, err)
			continue
		}
		namesAll(t, err.Error(), f)
	}
}

// Among the variants of iptables the one that has everything is taken.
func TestVariant(t *testing.T) {
	for _, c := range []struct {
		name string
		sets []Set
		want string
	}{
		{"none", nil, ""},
		{"both have all", []Set{{Name: "iptables-nft"}, {Name: "iptables-legacy"}}, ""},
		{"legacy alone has all", []Set{{Name: "iptables-nft", Features: []Feature{{Name: "target DNAT"}}}, {Name: "iptables-legacy"}}, "iptables-legacy"},
		{"one could not be tried", []Set{{Name: "iptables-nft"}, {Name: "iptables-legacy", Err: "not permitted"}}, "iptables-nft"},
	} {
		if got := (Result{IPTables: c.sets}).Variant(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestVariantThatLacks(t *testing.T) {
	r := full(t)
	s := missingInBoth(*r.NFTables, r.NFTables.Features[0].Name)
	r.NFTables = &s
	r.IPTables[0] = without(r.IPTables[0], 0)
	chosen, why, err := r.Choose(proxy.ModeAuto)
	if chosen != proxy.ModeIPTables || err != nil || !contains(why, "iptables-legacy has all") {
		t.Errorf("%q, %q, %v", chosen, why, err)
	}
}

func TestNothingWorks(t *testing.T) {
	r := full(t)
	s := missingInBoth(*r.NFTables, "nat chains")
	r.NFTables, r.IPTables = &s, nil
	_, _, err := r.Choose(proxy.ModeAuto)
	want := "--proxy-mode auto cannot work here: nftables lacks nat chains for IPv4 and IPv6 [CONFIG_NFT_NAT, CONFIG_NF_NAT; module nft_chain_nat; no such file or directory]; " +
		"no iptables is installed; modprobe -a nft_chain_nat; if there is no such module, apt install linux-image-rpi-v8, or use a kernel with CONFIG_NFT_NAT, CONFIG_NF_NAT, " +
		"or for iptables: apt install iptables"
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	r.NFTables = &Set{Name: proxy.ModeNFTables, Err: "operation not permitted", Remedy: asRoot}
	if _, _, err := r.Choose(proxy.ModeNFTables); err == nil || !contains(err.Error(), "root") {
		t.Errorf("without permission: %v", err)
	}
}

func TestRemedies(t *testing.T) {
	missing := Feature{Config: []string{"CONFIG_X"}, Module: "x", Package: kernelPackages()}
	tests := []struct {
		host Host
		want string
	}{
		{Host{Debian, "6.1", true}, "modprobe -a x; if there is no such module, apt install linux-image-arm64, or use a kernel with CONFIG_X"},
		{Host{Alpine, "6.1", true}, "modprobe -a x; if there is no such module, apk add linux-lts, or use a kernel with CONFIG_X"},
		{Host{Ubuntu, "6.1", false}, "the modules of the running kernel 6.1 are not in /lib/modules: start the machine again if the kernel was updated, " +
			"else apt install linux-modules-extra-$(uname -r), or use a kernel with CONFIG_X"},
		{Host{"", "6.1", true}, "modprobe -a x; if there is no such module, install linux-image-rpi-v8 (Raspberry Pi OS), linux-image-arm64 (Debian), " +
			"linux-modules-extra-$(uname -r) (Ubuntu), linux-lts (Alpine), or use a kernel with CONFIG_X"},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, test.host.Remedy([]Feature{missing})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestHost(t *testing.T) {
	tests := []struct{ release, rpi, want string }{
		{"ID=debian\nVERSION_ID=\"12\"\n", "", Debian},
		{"PRETTY_NAME=x\nID=\"ubuntu\"\n", "", Ubuntu},
		{"ID=alpine\n", "", Alpine},
		{"ID=debian\n", "Raspberry Pi reference 2025-05-13\n", RaspberryPiOS},
		{"ID=raspbian\n", "", RaspberryPiOS},
		{"ID=fedora\n", "", ""},
		{"", "", ""},
	}
	for _, test := range tests {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"os-release": test.release, "rpi-issue": test.rpi} {
			if text != "" {
				if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := hostAt(root).Distribution; got != test.want {
			t.Errorf("%q, %q: %q, want %q", test.release, test.rpi, got, test.want)
		}
	}
}
