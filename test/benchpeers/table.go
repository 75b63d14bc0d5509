package main

import (
	"fmt"
	"io"
	"time"

	"sluice/test/procfs"
)

// targets are how many times less than kube-proxy the agent is to take, by size.
var targets = map[string]map[size]target{
	"nftables": {
		{1, 1}:      {rss: 3},
		{100, 3}:    {anonymous: 2, rss: 3},
		{1000, 10}:  {anonymous: 3, rss: 3, start: 3, offline: 300 * time.Millisecond},
		{10000, 10}: {anonymous: 4, rss: 3, start: 30, change: 50},
	},
	"iptables": {
		{1000, 10}: {start: 10},
		{5000, 3}:  {change: 5},
	},
}

// target is how much better than kube-proxy it is to be, and how long a start from the cache may take; 0 is no target.
type target struct {
	anonymous, rss, start, change float64
	offline                       time.Duration
}

// table shows what was measured, in Markdown.
type table struct {
	out     io.Writer
	targets map[size]target
	missed  int // targets
}

func (t *table) header() {
	fmt.Fprintln(t.out, "| Services × endpoints | | kube-proxy | sluice | ratio | target | |")
	fmt.Fprintln(t.out, "|---|---|--:|--:|--:|--:|---|")
}

func (t *table) row(s size, what, their, our, ratio, target string, ok bool) {
	verdict := ""
	if target != "" && ok {
		verdict = "met"
	} else if target != "" {
		verdict = "MISSED"
		t.missed++
	}
	fmt.Fprintf(t.out, "| %v | %s | %s | %s | %s | %s | %s |\n", s, what, their, our, ratio, target, verdict)
}

// compare shows how many times more kube-proxy takes, of which 0 means that it could not follow. A target of 0 is none.
func (t *table) compare(s size, what string, their, our, target float64, show func(float64) string) {
	if their == 0 {
		t.row(s, what, "–", show(our), "", "", true)
		return
	}
	ratio, want := their/our, ""
	if target > 0 {
		want = fmt.Sprintf("≥ %g", target)
	}
	t.row(s, what, show(their), show(our), fmt.Sprintf("%.1f", ratio), want, ratio >= target)
}

// rows shows all of one size.
func (t *table) rows(s size, k, u result) {
	want := t.targets[s]
	t.compare(s, "anonymous memory", float64(k.memory.anonymous), float64(u.memory.anonymous), want.anonymous, megabytes)
	t.compare(s, "RSS", float64(k.memory.rss), float64(u.memory.rss), want.rss, megabytes)
	t.compare(s, "peak RSS until then", float64(k.memory.peak), float64(u.memory.peak), 0, megabytes)
	t.compare(s, "start to complete rules", float64(k.start), float64(u.start), want.start, milliseconds)
	t.compare(s, "CPU time until then", float64(k.startCPU), float64(max(u.startCPU, procfs.Tick)), 0, seconds)
	t.compare(s, "one change, from the request to the API", float64(k.sent), float64(u.sent), want.change, milliseconds)
	// The kernel may have the change before the API server has answered.
	t.row(s, "one change, from the API's answer", milliseconds(float64(k.acked)), milliseconds(float64(u.acked)), "", "", true)
	t.compare(s, "first packet of a connection", float64(k.first), float64(u.first), 0, microseconds)
	if k.cpu > 0 {
		t.compare(s, fmt.Sprintf("CPU under churn (%.0f and %.0f changes a second)", k.rate, u.rate), float64(k.cpu), float64(max(u.cpu, procfs.Tick)), 0, seconds)
		t.compare(s, "anonymous memory at its end", float64(k.churned.anonymous), float64(u.churned.anonymous), 0, megabytes)
	}
	limit := ""
	if want.offline > 0 {
		limit = fmt.Sprintf("≤ %v", want.offline)
	}
	t.row(s, "start to complete rules without an API server", "never", milliseconds(float64(u.offline)), "", limit, u.offline <= want.offline)
	t.row(s, "CPU time until then", "", seconds(float64(u.offlineCPU)), "", "", true)
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

func milliseconds(d float64) string {
	if ms := d / 1e6; ms < 10 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", d/1e6)
}

func microseconds(d float64) string { return fmt.Sprintf("%.1f µs", d/1e3) }

func seconds(d float64) string { return fmt.Sprintf("%.2f s", d/1e9) }
