package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNextSlots(t *testing.T) {
	for _, tc := range []struct{ name, prev, want, next string }{
		{"first", "", "pod1:80 pod2:80", "pod1:80 pod2:80"},
		{"none", "pod1:80 pod2:80", "", ""},
		{"same", "pod2:80 pod1:80", "pod1:80 pod2:80", "pod2:80 pod1:80"},
		{"one more", "pod2:80 pod3:80", "pod1:80 pod2:80 pod3:80", "pod2:80 pod3:80 pod1:80"},
		{"first goes", "pod1:80 pod2:80 pod3:80", "pod2:80 pod3:80", "pod3:80 pod2:80"},
		{"last goes", "pod1:80 pod2:80 pod3:80", "pod1:80 pod2:80", "pod1:80 pod2:80"},
		{"two go", "pod1:80 pod2:80 pod3:80 pod4:80 pod5:80", "pod2:80 pod4:80 pod5:80", "pod5:80 pod2:80 pod4:80"},
		{"one for another", "pod1:80 pod2:80 pod3:80", "pod1:80 pod3:80 pod4:80", "pod1:80 pod4:80 pod3:80"},
		{"new ones before the last", "pod1:80 pod2:80 pod3:80 pod4:80", "pod3:80 pod4:80 pod5:80", "pod5:80 pod4:80 pod3:80"},
		{"twice in the slots", "pod1:80 pod1:80 pod2:80", "pod1:80 pod2:80 pod3:80", "pod1:80 pod3:80 pod2:80"},
		{"another port is another endpoint", "pod1:80 pod2:80", "pod1:81 pod2:80", "pod1:81 pod2:80"},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				got := nextSlots(ats(f, tc.prev), ats(f, tc.want))
				if diff := cmp.Diff(ats(f, tc.next), got, compareAddrs); diff != "" {
					t.Errorf("nextSlots(%s, %s) (-want +got):\n%s", tc.prev, tc.want, diff)
				}
			})
		}
	}
}

// changed counts the slots that differ.
func changed(a, b []netip.AddrPort) int {
	n := 0
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			n++
		}
	}
	return n
}

func TestNextSlotsChangesFew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		universe := random.Perm(40)
		size := 1 + random.IntN(30)
		want := func(numbers []int) []netip.AddrPort {
			var list []netip.AddrPort
			for _, n := range numbers {
				list = append(list, at(IPv4, fmt.Sprintf("pod%d:80", n+1)))
			}
			slices.SortFunc(list, netip.AddrPort.Compare)
			return list
		}
		prev := nextSlots(want(universe[:size]), want(universe[:size]))
		random.Shuffle(size, func(i, j int) { prev[i], prev[j] = prev[j], prev[i] })

		// universe[0] goes.
		if n := changed(prev, nextSlots(prev, want(universe[1:size]))); n > 2 {
			t.Fatalf("one of %d endpoints went: %d slots changed, want 2 at most", size, n)
		}
		// universe[size] comes in its place.
		if n := changed(prev, nextSlots(prev, want(universe[1:size+1]))); n != 1 {
			t.Fatalf("one of %d endpoints was replaced: %d slots changed, want 1", size, n)
		}
		// universe[size] comes as well.
		if n := changed(prev, nextSlots(prev, want(universe[:size+1]))); n != 1 {
			t.Fatalf("an endpoint came to %d: %d slots changed, want 1", size, n)
		}
		// Whatever changes: the slots hold just what is wanted, and nothing moved that had room.
		to := universe[random.IntN(10) : 10+random.IntN(30)]
		next := nextSlots(prev, want(to))
		sorted := slices.SortedFunc(slices.Values(next), netip.AddrPort.Compare)
		if diff := cmp.Diff(want(to), sorted, compareAddrs); diff != "" {
			t.Fatalf("slots hold other endpoints than wanted (-want +got):\n%s", diff)
		}
		for i, ep := range prev {
			if i < len(next) && slices.Contains(next, ep) && next[i] != ep {
				t.Fatalf("%v moved from slot %d, which still exists", ep, i)
			}
		}
	}
}

func TestAffinityIDOfPorts(t *testing.T) {
	seen := map[uint32]string{}
	for _, port := range []ServicePortName{
		{ServiceName{"a", "b"}, "", TCP},
		{ServiceName{"a", "b"}, "", UDP},
		{ServiceName{"a", "b"}, "c", TCP},
		{ServiceName{"a", "bc"}, "", TCP},
		{ServiceName{"ab", "c"}, "", TCP},
	} {
		for _, localPool := range []bool{false, true} {
			id, what := affinityID(port, localPool), fmt.Sprintf("%v/%v local=%v", port, port.Protocol, localPool)
			if id == 0 {
				t.Errorf("%s: the id is 0, which means no affinity", what)
			}
			if seen[id] != "" {
				t.Errorf("%s has the id of %s", what, seen[id])
			}
			if again := affinityID(port, localPool); again != id {
				t.Errorf("%s: %d, then %d", what, id, again)
			}
			seen[id] = what
		}
	}
	// A change of the hash would make the affinity entries that kernels have worthless.
	if got := affinityID(ServicePortName{ServiceName{"default", "web"}, "http", TCP}, false); got != 795925864 {
		t.Errorf("the id of default/web:http is %d now", got)
	}
}
