package differential

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/rig"
	"sluice/test/world"
)

// side is one of the two labs, with a proxy on its node.
type side struct {
	name string // of the proxy, and of its table
	*lab.Lab
	// alive fails the test if the proxy has ended.
	alive func()
}

// await waits until the mark with that port is in the tables of both families.
func (s *side) await(t *testing.T, port int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, f := range proxy.Families {
		pod := regexp.QuoteMeta(s.Pods[0].Addr(f).String())
		service := regexp.MustCompile(fmt.Sprintf(`%s \. tcp \. %d\b`, regexp.QuoteMeta(world.ServiceIP(f, markNumber).String()), port))
		endpoint := regexp.MustCompile(fmt.Sprintf(`%s\]?(:| \. )%d\b`, pod, port))
		for {
			listing, err := s.Node.Run(ctx, "", "nft", "list", "table", rig.NFTFamily[f], s.name)
			if err == nil && service.MatchString(listing) && endpoint.MatchString(listing) {
				break
			}
			s.alive()
			if ctx.Err() != nil {
				t.Fatalf("%s did not take up the changes: %v\n%s", s.name, err, listing)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// forget empties the node's connection tracking table: a packet with the addresses and ports of an earlier one
// would meet what that one met.
func (s *side) forget() error {
	conn, err := conntrack.Dial(&netlink.Config{NetNS: s.Node.FD()})
	if err != nil {
		return err
	}
	return errors.Join(conn.Flush(), conn.Close())
}

// Time after which silence is silence, the first time and where a difference is looked into.
const (
	short = 300 * time.Millisecond
	long  = 2 * time.Second
)

// parallel bounds the probes that are under way in a lab at the same time: each takes a thread.
const parallel = 24

// ask sends all probes, each so often that every endpoint answers once, and adds what they met to seen.
func (s *side) ask(ctx context.Context, probes []probe, timeout time.Duration, seen []map[string]bool) {
	slots := make(chan struct{}, parallel)
	done := make(chan struct{})
	for i := range probes {
		go func() {
			slots <- struct{}{}
			s.askOne(ctx, &probes[i], timeout, seen[i])
			<-slots
			done <- struct{}{}
		}()
	}
	for range probes {
		<-done
	}
}

func (s *side) askOne(ctx context.Context, p *probe, timeout time.Duration, seen map[string]bool) {
	send := lab.Probe{From: s.Host(p.from), Source: p.source, To: p.at, Protocol: p.protocol, Timeout: timeout}
	// Of n endpoints that are chosen at random, one that is missed after that many is one in ten thousand.
	for n, more := 0, true; more; n++ {
		result := send.Send(ctx)
		seen[answer(p, result)] = true
		switch {
		case result.Kind != lab.Reached && len(seen) == 1:
			more = n < 1
		case p.sticky:
			more = n < 3
		default:
			more = n < 12*len(seen)-4
		}
	}
}

// answer is what is compared of a result.
func answer(p *probe, r lab.Result) string {
	if r.Kind == lab.Reached && p.sticky {
		return "one endpoint"
	}
	if r.Kind == lab.Reached && p.from == "node" && strings.HasPrefix(r.Endpoint, "node:") {
		// Of node's addresses the kernel takes the one of the interface that happens to be its first.
		return r.Endpoint + " from itself"
	}
	return r.String()
}

func text(answers map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(answers)), ", ")
}
