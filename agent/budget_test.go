package agent

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sluice/proxy"
)

func named(list []*cost) string {
	var words []string
	for _, c := range list {
		words = append(words, c.name.Name)
	}
	return strings.Join(words, " ")
}

// The oldest Services fit, and what fits again is taken in again.
func TestBudget(t *testing.T) {
	b := budget{limit: 10}
	for _, step := range []struct {
		name            string
		created, weight int64
		served, left    string
	}{
		{"a", 3, 4, "a", ""},
		{"b", 4, 6, "a b", ""},
		{"c", 5, 1, "a b", "c"},   // younger
		{"d", 1, 3, "d a c", "b"}, // older: it takes the place of a younger one; a small one fits beside it
		{"d", 1, 0, "a b", "c"},   // it goes
		{"b", 4, 7, "a c", "b"},   // it grows
		{"b", 4, 7, "a c", "b"},   // the same again
		{"a", 3, 2, "a b c", ""},  // another shrinks
		{"e", 9, 11, "a b c", "e"},
		{"x", 0, 0, "a b c", "e"}, // nothing
		{"a", 6, 2, "b c a", "e"}, // made anew
		{"b", 4, 0, "c a", "e"},
		{"c", 5, 0, "a", "e"},
		{"a", 6, 0, "", "e"},
		{"e", 9, 10, "e", ""},
	} {
		_, _ = b.set(proxy.ServiceName{Name: step.name}, step.created, step.weight)
		b.settle()
		if got, left := named(b.served), named(b.left); got != step.served || left != step.left {
			t.Errorf("%s@%d of %d: served %q, left %q, want %q, %q", step.name, step.created, step.weight, got, left, step.served, step.left)
		}
	}
}

// Whatever comes and goes, the sum is right, nothing is over the limit, and who is left out would not fit.
func TestBudgetSum(t *testing.T) {
	b := budget{limit: 1000}
	left := map[string]bool{}
	for range 20000 {
		name := fmt.Sprint(rand.N(200))
		out, evicted := b.set(proxy.ServiceName{Name: name}, rand.Int64N(5), rand.Int64N(40))
		left[name] = out
		for _, n := range evicted {
			left[n.Name] = true
		}
		admitted, evicted := b.settle()
		for _, n := range evicted {
			left[n.Name] = true
		}
		for _, n := range admitted {
			left[n.Name] = false
		}
		var sum int64
		for _, c := range b.served {
			sum += c.weight
			if c.left || left[c.name.Name] {
				t.Fatalf("%v is served and left out", c)
			}
		}
		if sum != b.used || sum > b.limit || len(b.served)+len(b.left) != len(b.known) {
			t.Fatalf("used %d, counted %d, limit %d; %d + %d of %d", b.used, sum, b.limit, len(b.served), len(b.left), len(b.known))
		}
		for _, c := range b.left {
			if !c.left || !left[c.name.Name] || b.used+c.weight <= b.limit {
				t.Fatalf("%v fits and is left out", c)
			}
		}
	}
}
