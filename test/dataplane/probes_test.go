package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// expectation is one line of a table of probes:
//
//	FROM[@SOURCE] PROTOCOL ADDRESS[:PORT] => ENDPOINT... from SEEN
//	FROM[@SOURCE] PROTOCOL ADDRESS[:PORT] => refused | unreachable | silence
//
// FROM is a host of the lab, SOURCE one of its addresses if it is not to choose. With several ENDPOINTs (host:port),
// connections are made until each must have been reached. SEEN is the source address that they
// saw: a name, "client" for that of the sender, "masqueraded" for node's address on the way to the endpoint, or "any".
type expectation struct {
	line      string
	probe     lab.Probe
	kind      lab.Kind
	endpoints []string
	seen      string
}

// silence is the time after which a probe that must get no answer gives up. One
// that must get an answer waits longer, as the machine may be busy.
const silence = 300 * time.Millisecond

var protocols = map[string]proxy.Protocol{"tcp": proxy.TCP, "udp": proxy.UDP, "sctp": proxy.SCTP, "ping": lab.Ping}

// parseProbes reads a table. A line with a protocol like "tcp,udp" is one line for each.
func (r *run) parseProbes(table string) ([]expectation, error) {
	var all []expectation
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, "=>")
		fields := strings.Fields(left)
		if !ok || len(fields) != 3 {
			return nil, fmt.Errorf("probe %q: want FROM PROTOCOL ADDRESS:PORT => RESULT", line)
		}
		for protocol := range strings.SplitSeq(fields[1], ",") {
			probe, err := r.parseProbe(fields[0], protocol, fields[2])
			if err != nil {
				return nil, fmt.Errorf("probe %q: %w", line, err)
			}
			e := expectation{probe: probe, line: fields[0] + " " + protocol + " " + fields[2] + " =>" + right}
			want, seen, found := strings.Cut(right, " from ")
			e.seen = strings.TrimSpace(seen)
			switch kind := lab.Kind(strings.TrimSpace(want)); kind {
			case lab.Refused, lab.Unreachable, lab.Silence:
				e.kind = kind
			default:
				e.kind, e.endpoints = lab.Reached, strings.Fields(want)
				if probe.Protocol != lab.Ping && (!found || len(e.endpoints) == 0) {
					return nil, fmt.Errorf("probe %q: want endpoints, and the source that they see", line)
				}
			}
			if e.kind == lab.Silence {
				e.probe.Timeout = silence
			}
			all = append(all, e)
		}
	}
	return all, nil
}

func (r *run) parseProbe(from, protocol, to string) (lab.Probe, error) {
	p := lab.Probe{Protocol: protocols[protocol], Timeout: 3 * time.Second}
	if p.Protocol == 0 {
		return p, fmt.Errorf("no protocol %q", protocol)
	}
	host, source, ok := strings.Cut(from, "@")
	if ok {
		if p.Source = r.names[source]; !p.Source.IsValid() {
			return p, fmt.Errorf("no address has the name %q", source)
		}
	}
	if p.From = r.lab.Host(host); p.From == nil {
		return p, fmt.Errorf("no host %q", host)
	}
	name, port, _ := strings.Cut(to, ":")
	addr := r.names[name]
	if !addr.IsValid() {
		return p, fmt.Errorf("no address has the name %q", name)
	}
	number, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16)
	p.To = netip.AddrPortFrom(addr, uint16(number))
	return p, err
}

// connections is how many are made for one line. With n endpoints that are chosen at
// random, the chance to miss one is below one in a million.
func (e *expectation) connections() int {
	switch n := len(e.endpoints); {
	case e.kind != lab.Reached:
		return 2
	case n <= 1:
		return 8
	default:
		return 16*n - 8
	}
}

// parallel bounds the probes that are under way at the same time: each takes a thread.
const parallel = 32

// probe sends what a table says, all lines at the same time.
func (r *run) probe(table string) {
	r.t.Helper()
	expectations, err := r.parseProbes(table)
	if err != nil {
		r.t.Fatal(err)
	}
	slots := make(chan struct{}, parallel)
	results := make([]map[string]int, len(expectations))
	done := make(chan struct{})
	for i := range expectations {
		go func() {
			results[i] = expectations[i].send(r.ctx, slots)
			done <- struct{}{}
		}()
	}
	for range expectations {
		<-done
	}
	predictor, err := r.openPredictor()
	defer predictor.close()
	r.must(err)
	for i := range expectations {
		for _, problem := range []string{r.judge(&expectations[i], results[i]), predictor.predict(&expectations[i])} {
			if problem != "" {
				r.t.Errorf("%s\n\t%s", expectations[i].line, problem)
			}
		}
	}
}

// send makes the connections for one line and counts the results.
func (e *expectation) send(ctx context.Context, slots chan struct{}) map[string]int {
	counts := map[string]int{}
	if e.kind == lab.Silence { // they wait: at the same time, and in nobody's way
		for _, result := range lab.SendAll(ctx, slices.Repeat([]lab.Probe{e.probe}, e.connections())) {
			counts[result.String()]++
		}
		return counts
	}
	for range e.connections() {
		slots <- struct{}{}
		result := e.probe.Send(ctx)
		<-slots
		counts[result.String()]++
		if result.Kind != e.kind {
			break // wrong already, and more of it might take long
		}
	}
	return counts
}

// judge compares what was met with what was to be met.
func (r *run) judge(e *expectation, got map[string]int) string {
	want := map[string]bool{}
	if e.kind != lab.Reached {
		want[string(e.kind)] = true
	}
	for _, endpoint := range e.endpoints {
		seen, err := r.source(e, endpoint)
		if err != nil {
			return err.Error()
		}
		want[strings.TrimSpace(endpoint+" "+seen)] = true
	}
	if e.seen == "any" {
		got = withoutSources(got)
	}
	for result := range got {
		if !want[result] {
			return fmt.Sprintf("got %v, want %v", counts(got), slices.Sorted(maps.Keys(want)))
		}
	}
	for result := range want {
		if got[result] == 0 {
			return fmt.Sprintf("%q was never met: got %v", result, counts(got))
		}
	}
	return ""
}

// source returns the text of a result from the endpoint's name on.
func (r *run) source(e *expectation, endpoint string) (string, error) {
	host, _, _ := strings.Cut(endpoint, ":")
	var addr netip.Addr
	switch e.seen {
	case "", "any":
		return "", nil
	case "client":
		addr = e.probe.Source
		if !addr.IsValid() {
			addr = e.probe.From.Addr(r.family)
		}
	case "masqueraded":
		addr = r.names["node"]
		if slices.Contains(r.lab.Pods, r.lab.Host(host)) {
			addr = r.names["bridge"]
		}
	default:
		if addr = r.names[e.seen]; !addr.IsValid() {
			return "", fmt.Errorf("no address has the name %q", e.seen)
		}
	}
	return "from " + addr.String(), nil
}

func withoutSources(got map[string]int) map[string]int {
	short := map[string]int{}
	for result, n := range got {
		endpoint, _, _ := strings.Cut(result, " from ")
		short[endpoint] += n
	}
	return short
}

func counts(got map[string]int) string {
	var parts []string
	for _, result := range slices.Sorted(maps.Keys(got)) {
		parts = append(parts, fmt.Sprintf("%q %d×", result, got[result]))
	}
	return strings.Join(parts, ", ")
}
