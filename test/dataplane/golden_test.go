package dataplane

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

// goldenVersion is the version of nft whose way to print the golden texts follow. Others differ in details.
const goldenVersion = "v1.0.6"

var update = flag.Bool("update", false, "write the golden files anew from what the kernel has")

// TestRuleSet compares the whole table, as nft prints it, with a text. It changes by
// every change of the rules: review the difference, and write the text anew with -update.
func TestRuleSet(t *testing.T) {
	l := newLab(t, lab.Options{})
	version, err := l.Node.Run(t.Context(), "", "nft", "--version")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range proxy.Families {
		t.Run(f.String(), func(t *testing.T) {
			s, err := newNFT(l, f, nft.Options{Shared: true}) // the flags of an owned table depend on the kernel
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			setGoldenObjects(t, s, l, f)
			// A client, so that there is an affinity entry.
			probe := lab.Probe{From: l.Outside, To: netip.AddrPortFrom(l.Node.Addr(f), 30080), Protocol: proxy.TCP}
			if result := probe.Send(t.Context()); result.Kind != lab.Reached {
				t.Fatalf("send from outside: %s", result)
			}
			out, err := l.Node.Run(t.Context(), "", "nft", append([]string{"list", "table"}, strings.Fields(nftTable(f))...)...)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(version, goldenVersion) {
				t.Skipf("the listing is not compared: the texts are as nft %s prints, and this is %s", goldenVersion, version)
			}
			compareGolden(t, strings.ReplaceAll(nftTable(f), " ", "-")+".nft.golden", stable(out))
		})
	}
}

var (
	counters = regexp.MustCompile(`packets \d+ bytes \d+`)
	expiry   = regexp.MustCompile(`(timeout [0-9a-z]+ )expires [0-9a-z]+`)
	elements = regexp.MustCompile(`(?s)elements = \{(.*?)\}`)
)

// stable removes from nft's listing what differs from run to run: counts, times, and the order of
// elements, which is that of a hash table, and of chains, which is that of their making.
func stable(listing string) string {
	listing = counters.ReplaceAllString(listing, "packets N bytes N")
	listing = expiry.ReplaceAllString(listing, "${1}expires T")
	listing = elements.ReplaceAllStringFunc(listing, func(all string) string {
		list := strings.Split(elements.FindStringSubmatch(all)[1], ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		slices.Sort(list)
		return "elements = {\n\t\t\t" + strings.Join(list, ",\n\t\t\t") + "\n\t\t}"
	})
	const between = "\n\n"
	blocks := strings.Split(strings.TrimSuffix(listing, "\n}\n"), between)
	chains := slices.IndexFunc(blocks, func(block string) bool { return strings.HasPrefix(block, "\tchain ") })
	slices.Sort(blocks[chains:])
	return strings.Join(blocks, between) + "\n}\n"
}

// setGoldenObjects gives a subject the objects that the golden texts are of.
func setGoldenObjects(t *testing.T, s subject, l *lab.Lab, f proxy.Family) {
	t.Helper()
	objects, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changes, err := parseObjects(string(objects), f, l.Names(f))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the rules differ from %s (-want +got); if they should, run this test with -update:\n%s", path, diff)
	}
}
