package probe

import (
	"context"
	"errors"
	"os"
	"sync"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
)

// Feature is one thing that a writer needs of the kernel (or of the iptables program), in one IP family.
type Feature struct {
	// Name says what it is, for people.
	Name string `json:"name"`
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	OK     bool   `json:"ok"`
	// Optional: the writer does without it.
	Optional bool `json:"optional,omitempty"`
	// Error is what the kernel or the program said; empty if OK.
	Error string `json:"error,omitempty"`
	// Config is the kernel's build options, CONFIG_ and all.
	Config []string `json:"config,omitempty"`
	// Module is the kernel's module.
	Module string `json:"module,omitempty"`
	// Package is what to install for it, by distribution (see Packages).
	Package map[string]string `json:"package,omitempty"`
}

// Set is what was tried for one writer.
type Set struct {
	// Name is "nftables" or the iptables variant.
	Name     string    `json:"name"`
	Features []Feature `json:"features,omitempty"`
	// Err says why nothing could be tried, and Remedy what to do then; empty if it could.
	Err    string `json:"error,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Result is all that was found.
type Result struct {
	Host Host `json:"host"`
	// Where it was tried.
	Where string `json:"where"`
	// NFTables is nil if it was not asked for.
	NFTables *Set `json:"nftables,omitempty"`
	// IPTables has one Set for each iptables variant that was tried. It is empty if none was
	// asked for, or no iptables is installed.
	IPTables []Set `json:"iptables,omitempty"`

	variants []Variant
}

// Installed are the variants of iptables that were found in a family, for iptables.Options; nil if none was looked for.
func (r Result) Installed(f proxy.Family) []iptables.Variant {
	var all []iptables.Variant
	for _, v := range r.variants {
		if programs, ok := v.Programs[f]; ok {
			all = append(all, programs)
		}
	}
	return all
}

// The values of Result.Where.
const (
	inThrowAway = "a network namespace that was made for it"
	inThisOne   = "a table without packets in this network namespace"
)

// Options for Run.
type Options struct {
	// Mode is proxy.ModeAuto (nftables, and iptables only if something of nftables is missing),
	// proxy.ModeNFTables or proxy.ModeIPTables (only that). Empty is both.
	Mode string
	// Families to try; nil is IPv4, and IPv6 if this machine has it.
	Families []proxy.Family
	// Variants of iptables to try; nil looks for them.
	Variants []Variant
}

// Run tries everything. It takes a few milliseconds where nftables has all; each iptables feature takes some more.
func Run(ctx context.Context, o Options) Result {
	r := Result{Host: ThisHost(), Where: inThrowAway}
	if o.Families == nil {
		o.Families = Families()
	}
	ns, err := newNamespace()
	if err != nil {
		r.Where, ns = inThisOne, nil
	} else {
		defer ns.Close()
	}
	if o.Mode != proxy.ModeIPTables {
		r.NFTables = tryNFTables(ns, o.Families)
	}
	if o.Mode == proxy.ModeIPTables || o.Mode == "" || o.Mode == proxy.ModeAuto && !r.NFTables.complete() {
		if o.Variants == nil {
			o.Variants = Variants(ctx)
		}
		r.variants = o.Variants
		r.IPTables = make([]Set, len(o.Variants))
		var all sync.WaitGroup
		for i, v := range o.Variants {
			all.Go(func() { r.IPTables[i] = tryIPTables(ctx, ns, v, o.Families) })
		}
		all.Wait()
	}
	return r
}

const asRoot = "run as root or with CAP_NET_ADMIN"

// Families are the IP families of this machine.
func Families() []proxy.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); errors.Is(err, os.ErrNotExist) {
		return []proxy.Family{proxy.IPv4}
	}
	return proxy.Families[:]
}

func tryNFTables(ns *os.File, families []proxy.Family) *Set {
	s := &Set{Name: proxy.ModeNFTables}
	for _, f := range families {
		opts := nft.Options{Family: f}
		if ns != nil {
			opts.NetNS = int(ns.Fd())
		}
		trials, err := nft.Probe(opts)
		if err != nil {
			s.Err, s.Remedy = err.Error(), asRoot
			return s
		}
		for _, t := range trials {
			s.add(f, t.Name, t.Config, t.Module, t.Optional, t.Err)
		}
	}
	return s
}

// add adds what was tried.
func (s *Set) add(f proxy.Family, name, config, module string, optional bool, err error) {
	feature := Feature{Name: name, Family: f.String(), OK: err == nil, Optional: optional,
		Config: options(config), Module: module, Package: kernelPackages()}
	if err != nil {
		feature.Error = err.Error()
	}
	s.Features = append(s.Features, feature)
}

// complete tells whether a writer can serve every family.
func (s *Set) complete() bool { return s.Err == "" && len(s.Missing()) == 0 }

// Missing are the features that the writer cannot do without and that are not there.
func (s *Set) Missing() []Feature {
	var missing []Feature
	for _, f := range s.Features {
		if !f.OK && !f.Optional {
			missing = append(missing, f)
		}
	}
	return missing
}

// families returns those of the families that all is there for, and those that lack something.
func (s *Set) families() (served, lacking []string) {
	lacks := map[string]bool{}
	var all []string
	for _, f := range s.Features {
		if _, seen := lacks[f.Family]; !seen {
			lacks[f.Family] = false
			all = append(all, f.Family)
		}
		if !f.OK && !f.Optional {
			lacks[f.Family] = true
		}
	}
	for _, f := range all {
		if lacks[f] {
			lacking = append(lacking, f)
		} else {
			served = append(served, f)
		}
	}
	return served, lacking
}
