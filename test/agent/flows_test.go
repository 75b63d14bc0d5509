package agent

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// flows are TCP connections or UDP flows that stay open, one for each text and family.
type flows struct {
	t    *testing.T
	list []flow
}

type flow struct {
	*lab.Session
	text string
}

// open opens flows, whatever UDP meets.
func (c *cluster) open(texts ...string) *flows {
	c.t.Helper()
	fs := &flows{t: c.t}
	for _, text := range texts {
		for _, f := range proxy.Families {
			s, err := c.probe(f, text).Dial(c.t.Context())
			if err != nil {
				c.t.Fatalf("%v: %s: %v", f, text, err)
			}
			fs.list = append(fs.list, flow{s, f.String() + ": " + text})
		}
	}
	c.t.Cleanup(func() {
		for _, f := range fs.list {
			f.Close()
		}
	})
	return fs
}

// ask sends on all flows and returns what they met.
func (fs *flows) ask() []string {
	results := make([]string, len(fs.list))
	var group sync.WaitGroup
	for i, f := range fs.list {
		group.Go(func() { results[i] = met(f.Ask()) })
	}
	group.Wait()
	return results
}

// reach sends until every flow meets one of the results of "a|b".
func (fs *flows) reach(within time.Duration, want string) {
	fs.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		late := time.Now().After(deadline)
		got := fs.ask()
		i := slices.IndexFunc(got, func(g string) bool { return !slices.Contains(strings.Split(want, "|"), g) })
		if i < 0 {
			return
		}
		if late {
			fs.t.Fatalf("%s: got %s, want %s within %v", fs.list[i].text, got[i], want, within)
		}
	}
}
