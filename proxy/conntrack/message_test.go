package conntrack

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	ticonntrack "github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// FuzzDecode feeds decode with what no kernel sends.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 0, 0, 3, 0, 1, 0})
	f.Add([]byte{2, 0, 0, 0, 0xff, 0xff, 1, 0x80, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 12, 0, 1, 0x80, 8, 0, 1, 0x80, 5, 0, 1, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, ok := decode(payload)
		if ok && (!e.Dst.IsValid() || !e.ReplySrc.IsValid() || len(e.id) == 0) {
			t.Errorf("decode(%x) = %+v, incomplete", payload, e)
		}
	})
}

// A table of 10,000 entries costs less than one allocation for three of them, and
// all that are stale go in one pass.
func TestDeleteStaleManyFlows(t *testing.T) {
	ns, conn := newNode(t)
	const flows = 10_000
	fill(t, ns.FD(), flows)
	allocs := testing.AllocsPerRun(1, func() {
		seen := 0
		deleted, err := conn.DeleteStale(t.Context(), proxy.IPv4, func(proxy.Flow) bool { seen++; return false })
		if deleted != 0 || seen != flows || err != nil {
			t.Errorf("DeleteStale = %d, %v, and saw %d flows; want 0, and %d seen", deleted, err, seen, flows)
		}
	})
	if allocs > flows/3 {
		t.Errorf("%.0f allocations for %d flows", allocs, flows)
	}

	start := time.Now()
	deleted, err := conn.DeleteStale(t.Context(), proxy.IPv4, always)
	if deleted != flows || err != nil {
		t.Errorf("DeleteStale = %d, %v; want %d", deleted, err, flows)
	}
	t.Logf("%.0f allocations to look at %d flows; %v to delete them", allocs, flows, time.Since(start))
	if got := table(t, ns, proxy.IPv4); len(got) != 0 {
		t.Errorf("%d entries are left, want none", len(got))
	}
}

// BenchmarkDeleteStale looks through a table of 100,000 entries, and deletes one of a hundred of them. Others come in their place.
func BenchmarkDeleteStale(b *testing.B) {
	ns, conn := newNode(b)
	const flows, share = 100_000, 100
	fill(b, ns.FD(), flows)
	for name, stale := range map[string]int{"none of 100000": 0, "1000 of 100000": flows / share} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				seen := 0
				deleted, err := conn.DeleteStale(b.Context(), proxy.IPv4, func(proxy.Flow) bool { seen++; return stale > 0 && seen%share == 0 })
				if deleted != stale || seen != flows || err != nil {
					b.Fatalf("DeleteStale = %d, %v, and saw %d flows; want %d, and %d seen", deleted, err, seen, stale, flows)
				}
				b.StopTimer()
				if stale > 0 {
					fill(b, ns.FD(), flows)
				}
				b.StartTimer()
			}
		})
	}
}

// fill makes UDP entries with a translated destination, those that are not there.
func fill(t testing.TB, netNS, flows int) {
	t.Helper()
	conn, err := ticonntrack.Dial(&netlink.Config{NetNS: netNS})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range flows {
		client := netip.AddrFrom4([4]byte{10, byte(244 + i>>16), byte(i >> 8), byte(i)})
		f := ticonntrack.NewFlow(uint8(proxy.UDP), 0, client, netip.MustParseAddr("10.96.0.10"), 4000, 53, 600, 0)
		f.TupleReply.IP.SourceAddress = netip.MustParseAddr("10.244.0.53")
		f.TupleReply.Proto.SourcePort = 5353
		if err := conn.Create(f); err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
	}
}
