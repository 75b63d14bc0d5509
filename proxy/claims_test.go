package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// claimPlan reads "name@created: frontend[=port] ..." into a plan whose frontends are externalIPs; "own-" before one makes it the ClusterIP.
func claimPlan(f Family, s string) *ServicePlan {
	head, frontends, _ := strings.Cut(s, ":")
	name, created, _ := strings.Cut(head, "@")
	plan := &ServicePlan{Name: ServiceName{"shop", name}}
	fmt.Sscanf(created, "%d", &plan.Created)
	for _, word := range strings.Fields(frontends) {
		kind := ExternalIP
		if own, ok := strings.CutPrefix(word, "own-"); ok {
			word, kind = own, ClusterIP
		}
		addr, port, _ := strings.Cut(word, "=")
		plan.Frontends = append(plan.Frontends, FrontendRoute{
			Frontend{ipAddr(f, addr), 80, TCP},
			&Route{Port: ServicePortName{plan.Name, port, TCP}, Kind: kind, Pool: &Pool{}},
		})
	}
	return plan
}

func TestClaims(t *testing.T) {
	type step struct {
		do           string // a plan, or "-name"
		delta        string
		begun, ended string
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"the older one keeps it", []step{
			{do: "a@5: ext1", delta: "ext1:80/TCP: none => shop/a []"},
			{do: "b@7: ext1 ext2", delta: "ext2:80/TCP: none => shop/b []", begun: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "b@7: ext1 ext2"},
			{do: "-a", delta: "ext1:80/TCP: shop/a [] => shop/b []", ended: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "-b", delta: "ext1:80/TCP: shop/b [] => none ext2:80/TCP: shop/b [] => none"},
		}},
		{"the older one takes it", []step{
			{do: "b@7: ext1", delta: "ext1:80/TCP: none => shop/b []"},
			{do: "a@5: ext1", delta: "ext1:80/TCP: shop/b [] => shop/a []", begun: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "-b", ended: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "-a", delta: "ext1:80/TCP: shop/a [] => none"},
		}},
		{"of the same age, by name", []step{
			{do: "b@5: ext1", delta: "ext1:80/TCP: none => shop/b []"},
			{do: "a@5: ext1", delta: "ext1:80/TCP: shop/b [] => shop/a []", begun: "ext1:80/TCP of shop/b belongs to shop/a"},
		}},
		{"a younger one whose ClusterIP it is", []step{
			{do: "a@5: cluster1", delta: "cluster1:80/TCP: none => shop/a []"},
			{do: "b@7: own-cluster1", delta: "cluster1:80/TCP: shop/a [] => shop/b []", begun: "cluster1:80/TCP of shop/a belongs to shop/b"},
			{do: "c@6: own-cluster1", delta: "cluster1:80/TCP: shop/b [] => shop/c []",
				begun: "cluster1:80/TCP of shop/a belongs to shop/c cluster1:80/TCP of shop/b belongs to shop/c", ended: "cluster1:80/TCP of shop/a belongs to shop/b"},
		}},
		{"three", []step{
			{do: "a@5: ext1", delta: "ext1:80/TCP: none => shop/a []"},
			{do: "c@6: ext1", begun: "ext1:80/TCP of shop/c belongs to shop/a"},
			{do: "b@7: ext1", begun: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "-a", delta: "ext1:80/TCP: shop/a [] => shop/c []", begun: "ext1:80/TCP of shop/b belongs to shop/c",
				ended: "ext1:80/TCP of shop/b belongs to shop/a ext1:80/TCP of shop/c belongs to shop/a"},
			{do: "-b", ended: "ext1:80/TCP of shop/b belongs to shop/c"},
			{do: "-c", delta: "ext1:80/TCP: shop/c [] => none"},
		}},
		{"the holder lets go of it", []step{
			{do: "a@5: ext1 ext2", delta: "ext1:80/TCP: none => shop/a [] ext2:80/TCP: none => shop/a []"},
			{do: "b@7: ext1", begun: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "a@5: ext2", delta: "ext1:80/TCP: shop/a [] => shop/b []", ended: "ext1:80/TCP of shop/b belongs to shop/a"},
		}},
		{"the holder is made anew, and is the younger one", []step{
			{do: "a@5: ext1", delta: "ext1:80/TCP: none => shop/a []"},
			{do: "b@7: ext1", begun: "ext1:80/TCP of shop/b belongs to shop/a"},
			{do: "a@9: ext1", delta: "ext1:80/TCP: shop/a [] => shop/b []", begun: "ext1:80/TCP of shop/a belongs to shop/b",
				ended: "ext1:80/TCP of shop/b belongs to shop/a"},
		}},
		{"two ports of one Service: the first has it", []step{
			{do: "a@5: ext1=x ext1=y", delta: "ext1:80/TCP: none => shop/a:x []", begun: "ext1:80/TCP of shop/a:y belongs to shop/a:x"},
			{do: "a@5: ext1=y ext1=x", delta: "ext1:80/TCP: shop/a:x [] => shop/a:y []", begun: "ext1:80/TCP of shop/a:x belongs to shop/a:y",
				ended: "ext1:80/TCP of shop/a:y belongs to shop/a:x"},
			{do: "a@5: ext1=x", delta: "ext1:80/TCP: shop/a:y [] => shop/a:x []", ended: "ext1:80/TCP of shop/a:x belongs to shop/a:y"},
			{do: "-a", delta: "ext1:80/TCP: shop/a:x [] => none"},
		}},
		{"two ports of one Service, and another Service", []step{
			{do: "a@5: ext1=x ext1=y", delta: "ext1:80/TCP: none => shop/a:x []", begun: "ext1:80/TCP of shop/a:y belongs to shop/a:x"},
			{do: "b@1: ext1", delta: "ext1:80/TCP: shop/a:x [] => shop/b []",
				begun: "ext1:80/TCP of shop/a:x belongs to shop/b ext1:80/TCP of shop/a:y belongs to shop/b",
				ended: "ext1:80/TCP of shop/a:y belongs to shop/a:x"},
			{do: "-a", ended: "ext1:80/TCP of shop/a:x belongs to shop/b ext1:80/TCP of shop/a:y belongs to shop/b"},
		}},
		{"one port claims it twice, and another Service", []step{
			{do: "a@5: ext1 ext1", delta: "ext1:80/TCP: none => shop/a []"},
			{do: "b@1: ext1", delta: "ext1:80/TCP: shop/a [] => shop/b []", begun: "ext1:80/TCP of shop/a belongs to shop/b"},
		}},
		{"came and went between two looks", []step{
			{do: "a@5: ext1", delta: "ext1:80/TCP: none => shop/a []"},
			{do: "b@7: ext1; -b"},
		}},
	} {
		for _, f := range Families {
			t.Run(fmt.Sprintf("%s %v", tc.name, f), func(t *testing.T) {
				s := NewState(f, Settings{})
				for _, step := range tc.steps {
					var d Delta
					for _, do := range strings.Split(step.do, "; ") {
						if name, gone := strings.CutPrefix(do, "-"); gone {
							Merge(&d, s.Set(ServiceName{"shop", name}, nil))
						} else {
							plan := claimPlan(f, do)
							Merge(&d, s.Set(plan.Name, plan))
						}
					}
					if diff := cmp.Diff(step.delta, strings.Join(strings.Fields(changes(f, d)), " ")); diff != "" {
						t.Errorf("%s: delta (-want +got):\n%s", step.do, diff)
					}
					begun, ended := s.ConflictChanges()
					if diff := cmp.Diff(step.begun, conflicts(f, begun)); diff != "" {
						t.Errorf("%s: conflicts that began (-want +got):\n%s", step.do, diff)
					}
					if diff := cmp.Diff(step.ended, conflicts(f, ended)); diff != "" {
						t.Errorf("%s: conflicts that ended (-want +got):\n%s", step.do, diff)
					}
					if begun, ended := s.ConflictChanges(); begun != nil || ended != nil {
						t.Errorf("%s: conflicts are told twice", step.do)
					}
				}
			})
		}
	}
}

func conflicts(f Family, list []Conflict) string {
	var words []string
	for _, c := range list {
		words = append(words, named(f, c.String()))
	}
	return strings.Join(words, " ")
}
