package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/status"
	"sluice/proxy"
)

var begin = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func ready(counts ...int) (list []status.ReadyCount) {
	for i, f := range proxy.Families[:len(counts)/2] {
		list = append(list, status.ReadyCount{Family: f, Ready: counts[2*i], Total: counts[2*i+1]})
	}
	return list
}

// at is a reading after so many seconds. connections are those of web, dns and idle.
func at(seconds int, connections ...uint64) status.Counts {
	c := status.Counts{At: begin.Add(time.Duration(seconds) * time.Second), Node: "pi", Mode: "nftables"}
	for i, n := range connections {
		c.Items = append(c.Items, [...]status.ServiceCounts{
			{Namespace: "shop", Name: "web", FirstPacketBytes: 60 * n, Connections: n, Endpoints: ready(2, 3, 2, 3)},
			{Namespace: "kube-system", Name: "dns", FirstPacketBytes: 100 * n, Connections: n, Endpoints: ready(1, 1, 0, 1)},
			{Namespace: "shop", Name: "idle", FirstPacketBytes: 0, Connections: n},
		}[i])
	}
	return c
}

func TestText(t *testing.T) {
	uncounted := at(0, 0, 0)
	uncounted.At, uncounted.Mode, uncounted.NotCounted = time.Time{}, "iptables", "Nothing is counted."
	for _, test := range []struct {
		name           string
		earlier, later status.Counts
		namespace      string
		by             status.Key
		want           []string
	}{
		{"rates", at(0, 100, 20, 0), at(2, 103, 420, 0), "", status.ByRate, []string{
			"pi, nftables: 3 Services, 202 new connections/s over 2.0s",
			"SERVICE                NEW/S      TOTAL  ENDPOINTS  1ST-BYTES",
			"kube-system/dns          200        420    1/1,0/1        41K",
			"shop/web                 1.5        103        2/3       6.0K",
			"shop/idle                  0          0     <none>          0",
		}},
		{"names", at(0, 1, 0), at(1, 1, 0), "shop", status.ByName, []string{
			"pi, nftables: 1 Service, 0 new connections/s over 1.0s",
			"SERVICE                NEW/S      TOTAL  ENDPOINTS  1ST-BYTES",
			"shop/web                   0          1        2/3         60",
		}},
		{"first", status.Counts{}, at(1, 9, 4), "", status.ByEndpoints, []string{
			"pi, nftables: 2 Services, - new connections/s",
			"SERVICE                NEW/S      TOTAL  ENDPOINTS  1ST-BYTES",
			"kube-system/dns            -          4    1/1,0/1        400",
			"shop/web                   -          9        2/3        540",
		}},
		// The agent counts anew; a Service is new.
		{"back", at(0, 100), at(1, 9, 4), "", status.ByTotal, []string{
			"pi, nftables: 2 Services, 4.0 new connections/s over 1.0s",
			"SERVICE                NEW/S      TOTAL  ENDPOINTS  1ST-BYTES",
			"shop/web                   -          9        2/3        540",
			"kube-system/dns          4.0          4    1/1,0/1        400",
		}},
		{"not counted", uncounted, uncounted, "", status.ByRate, []string{
			"pi, iptables: 2 Services",
			"Nothing is counted.",
			"SERVICE                NEW/S      TOTAL  ENDPOINTS  1ST-BYTES",
			"kube-system/dns            -          -    1/1,0/1          -",
			"shop/web                   -          -        2/3          -",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Split(strings.TrimSuffix(NewTable(test.earlier, test.later, test.namespace).Text(test.by), "\n"), "\n")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Every width has lines of just that width, and the columns go one by one.
func TestWidths(t *testing.T) {
	table := NewTable(at(0, 1, 2), at(1, 3, 2), "")
	for width := range 130 {
		for _, l := range lines(table.rates.Services, width) {
			if len(l) != width && width >= len(columns[0].head)+1 {
				t.Errorf("width %d: a line has %d: %q", width, len(l), l)
			}
		}
	}
	for width, want := range map[int]string{
		80: "SERVICE                                   NEW/S      TOTAL  ENDPOINTS  1ST-BYTES",
		60: "SERVICE                          NEW/S      TOTAL  ENDPOINTS",
		40: "SERVICE                 NEW/S  ENDPOINTS",
		30: "SERVICE                  NEW/S",
		20: "SERVICE             ",
	} {
		if got := lines(nil, width)[0]; strings.TrimRight(got, " ") != strings.TrimRight(want, " ") {
			t.Errorf("width %d:\n%q, want\n%q", width, got, want)
		}
	}
	long := []row{{ServiceCounts: &status.ServiceCounts{Namespace: "a-namespace", Name: strings.Repeat("x", 60)}, Rate: 123456789}}
	if got := lines(long, 30)[1]; got != "a-namespace/xxxxxxxxx~ 123456~" {
		t.Errorf("%q", got)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[float64]string{-1: "-", 0: "0", 0.04: "0.0", 0.5: "0.5", 99.9: "99.9", 99.96: "100", 12345.6: "12346"} {
		if got := status.RateText(n); got != want {
			t.Errorf("RateText(%v) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1.0K", 10188: "9.9K", 10189: "10K", 1 << 20: "1.0M", 999 << 10: "999K", 1023 << 10: "1.0M", 1<<64 - 1: "16E"} {
		if got := size(n); got != want {
			t.Errorf("size(%v) = %s, want %s", n, got, want)
		}
	}
}

// No text of others gets at the terminal.
func TestPrintable(t *testing.T) {
	c := at(0, 1)
	c.Node, c.Items[0].Name = "p\x1b[2Ji", "w\u00e9b\n"
	if got := NewTable(c, c, "").Text(status.ByName); !strings.Contains(got, "p?[2Ji") || !strings.Contains(got, "shop/w?b?") {
		t.Errorf("%q", got)
	}
	l := &live{table: NewTable(c, c, ""), err: fmt.Errorf("a\x1b]0;b"), Options: Options{Sort: status.ByName}}
	if got := fmt.Sprint(l.lines(80, 24)); !strings.Contains(got, "a?]0;b") {
		t.Errorf("%q", got)
	}
}
