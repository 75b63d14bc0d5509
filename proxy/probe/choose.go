package probe

import (
	"fmt"
	"strings"

	"sluice/proxy"
)

// MissingError says that no writer, or not the one that was asked for, can work here.
type MissingError struct {
	// Mode is the one that was asked for.
	Mode string
	// Lacks says what is missing, and Remedy what to do about it.
	Lacks, Remedy string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("--proxy-mode %s cannot work here: %s; %s", e.Mode, e.Lacks, e.Remedy)
}

// Choose chooses between NFTables and IPTables. why is one sentence without a full stop. The
// families are served independently: a mode that can serve one of them is better than none, and why
// tells then what the other lacks. Auto prefers a mode that can serve all, and nftables of two.
// Where no family can be served, or not in the mode that was asked for, it is a *MissingError.
func (r Result) Choose(mode string) (chosen, why string, err error) {
	nft, ipt := r.NFTables, r.bestIPTables()
	if nft == nil {
		nft = &Set{Name: proxy.ModeNFTables, Err: "it was not asked for", Remedy: "ask for both"}
	}
	switch mode {
	case proxy.ModeNFTables:
		if nft.serves() {
			return proxy.ModeNFTables, "it was asked for" + nft.but(), nil
		}
		return "", "", &MissingError{mode, nft.lacks(), r.remedy(nft, "or use --proxy-mode auto")}
	case proxy.ModeIPTables:
		if ipt.serves() {
			return proxy.ModeIPTables, "it was asked for" + ipt.but(), nil
		}
		return "", "", &MissingError{mode, ipt.lacks(), r.remedy(ipt, "or use --proxy-mode auto")}
	}
	switch {
	case nft.serves() && nft.complete():
		return proxy.ModeNFTables, "the kernel has all that it needs", nil
	case ipt.serves() && ipt.complete():
		return proxy.ModeIPTables, fmt.Sprintf("%s has all that it needs, and %s (%s)", ipt.Name, nft.lacks(), r.remedy(nft, "")), nil
	case nft.serves():
		return proxy.ModeNFTables, "it is the best there is" + nft.but(), nil
	case ipt.serves():
		return proxy.ModeIPTables, "it is the best there is" + ipt.but(), nil
	}
	return "", "", &MissingError{proxy.ModeAuto, nft.lacks() + "; " + ipt.lacks(), r.remedy(nft, "or for iptables: "+r.remedy(ipt, ""))}
}

// Variant is the variant of iptables, as iptables.Options name it, that alone has all that is needed; empty if there are
// several, of which the one in use is best, or none.
func (r Result) Variant() string {
	var name string
	for i := range r.IPTables {
		if s := &r.IPTables[i]; s.complete() {
			if name != "" {
				return ""
			}
			name = s.Name
		}
	}
	return name
}

// bestIPTables is the variant that lacks least; nil if there is none.
func (r Result) bestIPTables() *Set {
	var best *Set
	for i := range r.IPTables {
		s := &r.IPTables[i]
		if best == nil || s.Err == "" && (best.Err != "" || len(s.Missing()) < len(best.Missing())) {
			best = s
		}
	}
	return best
}

// serves tells whether a writer can serve at least one family.
func (s *Set) serves() bool {
	if s == nil || s.Err != "" {
		return false
	}
	served, _ := s.families()
	return len(served) > 0
}

// but says which families are not served, and why.
func (s *Set) but() string {
	if _, lacking := s.families(); len(lacking) > 0 {
		return fmt.Sprintf(", but %s is not served, for %s", strings.Join(lacking, " and "), s.lacks())
	}
	return ""
}

// lacks is a sentence about what is missing.
func (s *Set) lacks() string {
	switch {
	case s == nil:
		return "no iptables is installed"
	case s.Err != "":
		return s.Name + " could not be tried: " + s.Err
	case s.Name == proxy.ModeNFTables:
		return "nftables lacks " + describe(s.Missing())
	}
	return s.Name + " lacks " + describe(s.Missing())
}

// remedy says what to do about what s lacks, and what else can be done.
func (r Result) remedy(s *Set, other string) string {
	var text string
	switch {
	case s == nil:
		text = r.Host.install(programPackages(""))
	case s.Err != "":
		text = s.Remedy
	default:
		text = r.Host.Remedy(s.Missing())
	}
	if other != "" {
		text += ", " + other
	}
	return text
}
