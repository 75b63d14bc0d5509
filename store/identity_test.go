package store

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice/agent/source"
	"sluice/test/testlog"
)

func TestIdentity(t *testing.T) {
	id := func(node, source string, ca ...string) Identity {
		return Identity{NodeName: node, Source: source, Facts: map[string][]string{"CA": ca}}
	}
	tests := []struct {
		name        string
		before, now Identity
		why         string // part of it; empty: the records are used
	}{
		{"the same", id("a", "api", "x"), id("a", "api", "x"), ""},
		{"unknown now", id("a", "api", "x"), id("a", "api", ""), ""},
		{"unknown before", id("a", "api", ""), id("a", "api", "x"), ""},
		{"one of two in common", id("a", "api", "x", "y"), id("a", "api", "w", "x"), ""},
		{"none of two in common", id("a", "api", "x", "y"), id("a", "api", "v", "w"), `its CA is "x,y", here it is "v,w"`},
		{"a source with a comma", id("a", "manifests /m,n", "x"), id("a", "manifests /l,n", "x"), `its source is "manifests /m,n"`},
		{"another node", id("a", "api", "x"), id("b", "api", "x"), `its node name is "a", here it is "b"`},
		{"another source", id("a", "api", "x"), id("a", "manifests /m", "x"), `its source is "api", here it is "manifests /m"`},
		{"another cluster", id("a", "api", "x"), id("a", "api", "y"), `its CA is "x", here it is "y"`},
		{"all of it", id("a", "api", "x"), id("b", "b", "y"), `"y"; its node name is "a"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := idle(cacheFile(t))
			log := &testlog.Records{}
			o.Log = slog.New(log)
			o.Identity = test.before
			s, _ := open(t, o)
			apply(s, service("web", 80))
			s.InStep(source.Service, "1", time.Now())
			s.InStep(source.EndpointSlice, "1", time.Now())
			s.Close()

			o.Identity = test.now
			s, cached := open(t, o)
			logged := strings.Join(log.Take(), "\n")
			if test.why == "" {
				if !cached.Complete || names(s) != "web" || logged != "" {
					t.Errorf("the records are not used: %+v, log %q", cached, logged)
				}
			} else {
				if cached.Complete || !strings.Contains(cached.Why, test.why) || names(s) != "" || s.Counts()[source.Service] != 0 {
					t.Errorf("the records are used, or the reason is missing: %+v, %q", cached, names(s))
				}
				if strings.Count(logged, "WARN") != 1 || !strings.Contains(logged, "the cache is not used") {
					t.Errorf("logged %q", logged)
				}
			}
			s.Close()
			// What was known on either side stays known.
			o.Identity = id(test.now.NodeName, test.now.Source, "z")
			_, cached = open(t, o)
			if want := `"z"`; cached.Complete || !strings.Contains(cached.Why, want) {
				t.Errorf("the next start: %+v", cached)
			}
		})
	}
}

func TestSetIdentity(t *testing.T) {
	o := idle(cacheFile(t))
	s, _ := open(t, o)
	apply(s, service("web", 80))
	in := func() {
		s.InStep(source.Service, "1", time.Now())
		s.InStep(source.EndpointSlice, "1", time.Now())
	}
	in()
	for _, step := range []struct {
		value, was string
		ok         bool
	}{{"", "", true}, {"u1", "", true}, {"u1", "u1", true}, {"", "u1", true}} {
		if was, ok := s.SetIdentity("UID", step.value); was != step.was || ok != step.ok {
			t.Errorf("SetIdentity(%q) is %q, %v", step.value, was, ok)
		}
	}
	s.Close()
	s, cached := open(t, o)
	if !cached.Complete {
		t.Errorf("after a fact that was unknown: %+v", cached)
	}
	if was, ok := s.SetIdentity("UID", "u2"); ok || was != "u1" {
		t.Errorf("a contradiction is %q, %v", was, ok)
	}
	if _, known := s.Age(time.Now()); known {
		t.Error("the age of records of something else is known")
	}
	s.Close()
	s, cached = open(t, o)
	if cached.Complete || cached.Counts[source.Service] != 1 {
		t.Errorf("after a contradiction: %+v", cached)
	}
	in()
	s.Close()
	o.Identity.Facts = map[string][]string{"UID": {"u2"}}
	if _, cached = open(t, o); !cached.Complete {
		t.Errorf("after all was handed over again: %+v", cached)
	}
}

// While an authority is rotated the cache is used all along, though nothing is left of its first identity.
func TestRotation(t *testing.T) {
	o := idle(cacheFile(t))
	in := func(s *Store) {
		s.InStep(source.Service, "1", time.Now())
		s.InStep(source.EndpointSlice, "1", time.Now())
	}
	start := func(want bool, ca ...string) *Store {
		t.Helper()
		o.Identity = Identity{NodeName: "a", Facts: map[string][]string{"CA": ca}}
		s, cached := open(t, o)
		if cached.Complete != want {
			t.Errorf("with %q: %+v", ca, cached)
		}
		return s
	}
	s := start(false, "old")
	apply(s, service("web", 80))
	in(s)
	s.Close()
	start(true, "old", "new").Close()
	s = start(true, "new")
	for _, ca := range [][]string{{"new", "newer"}, {"newer"}} { // while it runs
		if _, ok := s.SetIdentity("CA", ca...); !ok {
			t.Errorf("%q is a contradiction", ca)
		}
	}
	in(s)
	s.Close()
	s = start(true, "newer")
	if was, ok := s.SetIdentity("CA", "other"); ok || was != "newer" {
		t.Errorf("another one is %q, %v", was, ok)
	}
	s.Close()
	start(false, "other").Close()
}
