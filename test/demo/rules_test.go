package main

import (
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesFor(t *testing.T) {
	listing, err := os.ReadFile("testdata/listing.nft")
	if err != nil {
		t.Fatal(err)
	}
	got := rulesFor(string(listing), netip.MustParseAddrPort("10.96.0.4:80"), netip.MustParseAddr("192.168.50.100"))
	want := `     map service-ips
         10.96.0.4 . tcp . 80 counter packets 6 bytes 360 comment "default/cart" : goto sticky-2
     map endpoints
         10.96.0.4 . tcp . 80 . 0x00000000 : 10.244.1.11 . 8080
         10.96.0.4 . tcp . 80 . 0x00000001 : 10.244.1.12 . 8080
     map affinity
         5dda:2284 . 192.168.50.100 timeout 10m expires 9m59s984ms : 10.244.1.12 . 8080
     chain sticky-2
         meta priority set ip daddr . meta l4proto . th dport map @affinity-ids
         goto lb-2
     chain lb-2
         dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
