package status

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// maxLines is how many lines a list has for people. One Service with tens of thousands of ports can make as many.
const maxLines = 50

// unknown stands for what follows from objects that no one has told yet.
const unknown = "not known yet"

// waiting is true while neither the source nor a cache has told the objects.
func (s *Status) waiting() bool { return !s.Synced && !s.Cache.Serving }

// Headline says in one line whether the agent is healthy, and which one it is.
func (s *Status) Headline(now time.Time) string {
	state := "healthy"
	if !s.Healthy {
		state = "not healthy"
	}
	return fmt.Sprintf("%s, version %s, pid %d, up %s", state, s.Version, s.PID, age(s.Started, now))
}

// Fact is something of the status in a few words.
type Fact struct {
	// Key names it; empty for what belongs to the fact before.
	Key, Text string
}

// Facts are those that every status has.
func (s *Status) Facts(now time.Time) (facts []Fact) {
	line := func(key, format string, args ...any) { facts = append(facts, Fact{key, fmt.Sprintf(format, args...)}) }
	line("mode", "%s", s.Mode)
	known := ""
	switch {
	case !s.NodeKnown && s.waiting():
		known = " (its Node object is not known yet)"
	case !s.NodeKnown:
		known = " (there is no Node object of that name)"
	}
	line("node", "%s%s, at %s", s.Node, known, join(s.NodeAddresses))
	nodePorts, pods := join(s.NodePortAddresses), s.Detection
	if s.waiting() && len(s.NodePortAddresses) == 0 {
		nodePorts = unknown
	}
	if s.waiting() && pods == "" {
		pods = unknown
	}
	line("nodeports", "%s", nodePorts)
	key := "pods"
	for text := range strings.SplitSeq(pods, "\n") {
		line(key, "%s", text)
		key = ""
	}
	synced := "synced"
	switch {
	case s.Cache.Serving:
		synced = "no answer yet: served from the cache"
	case !s.Synced:
		synced = "not synced yet"
	}
	line("source", "%s, %s%s", s.Source, synced, s.objects())
	if s.Cache.Path != "" {
		line("cache", "%s", s.Cache.text())
	}
	if s.Flows != nil {
		text := s.Flows.String()
		if s.Flows.Full() {
			text += "; " + s.Flows.Room(0) + " on the host"
		}
		line("flows", "%s", text)
	}
	for _, f := range s.Families {
		line(f.Family.String(), "%s", f.text(now))
		if f.LastError != "" {
			line("", "last error: %s", f.LastError)
		}
		if !f.RetryAt.IsZero() {
			line("", "next try in %s", duration(max(0, f.RetryAt.Sub(now))))
		}
	}
	return facts
}

// Section is a list that a status can have.
type Section struct {
	Title string
	// Count is how many things it is about, some of which may have no line.
	Count int
	Lines []string
}

// Sections are the lists that are not empty, without what a terminal cannot show.
func (s *Status) Sections(now time.Time) (all []Section) {
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		shown := make([]string, 0, min(len(lines), maxLines+1))
		for _, l := range lines[:min(len(lines), maxLines)] {
			shown = append(shown, Printable(l))
		}
		if more := len(lines) - maxLines; more > 0 {
			shown = append(shown, fmt.Sprintf("and %d more, see sluice status -o json", more))
		}
		all = append(all, Section{title, len(lines), shown})
	}
	var problems []string
	for _, p := range s.Problems {
		problems = append(problems, fmt.Sprintf("%s: %s (for %s)", p.Where, p.Reason, age(p.Since, now)))
	}
	section("Problems", problems)
	section("Not served", s.Conflicts)
	var drift []string
	for _, d := range s.Drift {
		drift = append(drift, d.text(now))
	}
	section("Changed by other programs, and mended", drift)
	return all
}

// Write writes the status for people, as of now.
func (s *Status) Write(w io.Writer, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(key, text string) { fmt.Fprintf(t, "%s\t%s\n", key, text) } // Flush reports the error
	line("sluice", s.Headline(now))
	for _, r := range s.Reasons {
		line("", r)
	}
	for _, f := range s.Facts(now) {
		line(f.Key, f.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return s.writeSections(w, now)
}

func (s *Status) writeSections(w io.Writer, now time.Time) (err error) {
	for _, section := range s.Sections(now) {
		_, err = fmt.Fprintf(w, "\n%s:\n", section.Title)
		for _, l := range section.Lines {
			_, err = fmt.Fprintf(w, "  %s\n", l)
		}
	}
	return err
}

// objects lists what is held: ", 3 Service, 3 EndpointSlice, 1 Node".
func (s *Status) objects() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(s.Objects)) {
		if n := s.Objects[kind]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, kind)
		}
	}
	return b.String()
}

func (c *Cache) text() string {
	text := fmt.Sprintf("%s, %d KiB", c.Path, c.Size>>10)
	if c.Age > 0 {
		text += fmt.Sprintf(", in step with the API server %s ago", duration(c.Age))
	}
	if c.LastError != "" {
		text += "; not written: " + c.LastError
	}
	return text
}

func (f *Family) text(now time.Time) string {
	last := "never written"
	if !f.LastSync.IsZero() {
		last = fmt.Sprintf("written %s ago", age(f.LastSync, now))
	}
	if f.Pending {
		last += ", changes waiting"
	}
	return fmt.Sprintf("%s; %s; %s", f.counts(), last, count(f.Repairs, "repair"))
}

// counts says what is planned.
func (f *Family) counts() string {
	return fmt.Sprintf("%s, %s, %s", count(f.Services, "service"), count(f.Frontends, "frontend"), count(f.Endpoints, "distinct endpoint"))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func join(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, a := range addrs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.String())
	}
	return b.String()
}

// age is the time from t to now in kubectl's short form.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration(max(0, now.Sub(t)))
}

// duration is d in its two largest units, the second only while it matters: 40s, 5m10s, 3h12m, 2d4h, 40d.
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 8*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "m")
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 8*day:
		return two(d, day, "d", time.Hour, "h")
	}
	return fmt.Sprintf("%dd", d/day)
}

func two(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	if rest := d % big / small; rest > 0 {
		return fmt.Sprintf("%d%s%d%s", d/big, bigName, rest, smallName)
	}
	return fmt.Sprintf("%d%s", d/big, bigName)
}

// Printable keeps what a file's name or a manifest may hold from the terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
