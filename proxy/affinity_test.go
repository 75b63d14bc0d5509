package proxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// affinityPlan has one split route whose pools ask for the ids cluster and local.
func affinityPlan(name string, cluster, local uint32) *ServicePlan {
	plan := claimPlan(IPv4, name+": ext1 ext2")
	first, second := plan.Frontends[0].Route, plan.Frontends[1].Route
	first.Pool.AffinityID, first.LocalPool = cluster, &Pool{AffinityID: local}
	second.Pool, second.LocalPool = first.Pool, first.LocalPool
	return plan
}

func TestAffinityIDsAreDifferent(t *testing.T) {
	type ids [2]uint32
	s := NewState(IPv4, Settings{})
	for _, step := range []struct {
		what           string
		set            string
		cluster, local uint32
		want           map[string]ids // after it, by Service
	}{
		{"nobody else", "a", 10, 11, map[string]ids{"a": {10, 11}}},
		{"both are taken: the next free ones", "b", 10, 11, map[string]ids{"a": {10, 11}, "b": {12, 13}}},
		{"set again: the same", "b", 10, 11, map[string]ids{"a": {10, 11}, "b": {12, 13}}},
		{"taken by one that moved", "c", 12, 100, map[string]ids{"a": {10, 11}, "b": {12, 13}, "c": {14, 100}}},
		{"without affinity the ids are free", "a", 0, 0, map[string]ids{"a": {0, 0}, "b": {12, 13}, "c": {14, 100}}},
		{"those that moved stay", "b", 10, 11, map[string]ids{"a": {0, 0}, "b": {12, 13}, "c": {14, 100}}},
		{"freed ones are given to whoever asks", "d", 10, 12, map[string]ids{"b": {12, 13}, "c": {14, 100}, "d": {10, 15}}},
		{"one of two changes", "d", 10, 300, map[string]ids{"b": {12, 13}, "d": {10, 300}}},
		{"0 is never given", "e", 1<<32 - 1, 1, map[string]ids{"e": {1<<32 - 1, 1}}},
		{"nor as the next one", "f", 1<<32 - 1, 2, map[string]ids{"e": {1<<32 - 1, 1}, "f": {2, 3}}},
	} {
		plan := affinityPlan(step.set, step.cluster, step.local)
		s.Set(plan.Name, plan)
		seen := map[uint32]*Pool{}
		got := map[string]ids{}
		for p := range s.Plans() {
			first, second := p.Frontends[0].Route, p.Frontends[1].Route
			if first.Pool != second.Pool || first.LocalPool != second.LocalPool {
				t.Errorf("%s: %v: frontends share their pools no more", step.what, p.Name)
			}
			for _, pool := range []*Pool{first.Pool, first.LocalPool} {
				if other := seen[pool.AffinityID]; other != nil && pool.AffinityID != 0 {
					t.Errorf("%s: two pools have the id %d", step.what, pool.AffinityID)
				}
				seen[pool.AffinityID] = pool
			}
			if _, asked := step.want[p.Name.Name]; asked {
				got[p.Name.Name] = ids{first.Pool.AffinityID, first.LocalPool.AffinityID}
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: ids (-want +got):\n%s", step.what, diff)
		}
	}
	for p := range s.Plans() {
		s.Set(p.Name, nil)
	}
	if len(s.affinity.owners)+len(s.affinity.moved) != 0 {
		t.Errorf("a state without Services still holds %v", s.affinity)
	}
}

func TestSetWithMovedAffinityIDIsNoChange(t *testing.T) {
	s := NewState(IPv4, Settings{})
	s.Set(ServiceName{"shop", "a"}, affinityPlan("a", 10, 11))
	s.Set(ServiceName{"shop", "b"}, affinityPlan("b", 10, 11))
	if d := s.Set(ServiceName{"shop", "b"}, affinityPlan("b", 10, 11)); !d.Empty() {
		t.Errorf("the same plan changes %s", changes(IPv4, d))
	}
}
