// Package top is the table of `sluice top`: the Services by new connections.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/agent/status"
)

// Key is what rows are sorted by.
type Key string

// The keys, as --sort names them. Each is also a key on the keyboard, by its first letter but for ByRate, which is c.
const (
	ByRate      Key = "rate"
	ByTotal     Key = "total"
	ByName      Key = "name"
	ByEndpoints Key = "endpoints"
	ByBytes     Key = "bytes"
)

// Keys are all of them.
var Keys = []Key{ByRate, ByTotal, ByName, ByEndpoints, ByBytes}

// Table is what one reading shows.
type Table struct {
	counts status.Counts
	over   string // the time of the rates; empty if there are none
	sum    string // new connections a second of all Services
	rows   []row
}

// A row keeps numbers: only those that are shown become text.
type row struct {
	of               *status.ServiceCounts
	counted          bool
	rate             float64 // below 0: not known
	ready, endpoints int
}

func (r *row) name() string { return printable(r.of.Namespace + "/" + r.of.Name) }

// unknown stands in the place of a number.
const unknown = "-"

// NewTable compares two readings. The earlier one may be empty: then there are no rates. namespace keeps others out; empty is all.
func NewTable(earlier, later status.Counts, namespace string) *Table {
	t := &Table{counts: later, sum: unknown}
	rates := status.NewRates(&earlier, &later)
	if rates.Over > 0 {
		t.over = strconv.FormatFloat(rates.Over.Seconds(), 'f', 1, 64) + "s"
	}
	sum, known := 0.0, false
	t.rows = make([]row, 0, len(later.Items))
	for i := range later.Items {
		s := &later.Items[i]
		if namespace != "" && s.Namespace != namespace {
			continue
		}
		r := row{of: s, counted: !later.At.IsZero(), rate: -1}
		for _, c := range s.Endpoints {
			r.ready, r.endpoints = r.ready+c.Ready, r.endpoints+c.Total
		}
		if rate, ok := rates.Of(s); ok {
			sum, known = sum+rate, true
			r.rate = rate
		}
		t.rows = append(t.rows, r)
	}
	if known {
		t.sum = number(sum)
	}
	return t
}

// sort orders the rows: the greatest first, but the names by the alphabet, and endpoints with the fewest ready ones first.
func (t *Table) sort(by Key) {
	slices.SortFunc(t.rows, func(a, b row) int {
		order := 0
		switch by {
		case ByTotal:
			order = cmp.Compare(b.of.Connections, a.of.Connections)
		case ByBytes:
			order = cmp.Compare(b.of.FirstPacketBytes, a.of.FirstPacketBytes)
		case ByEndpoints:
			order = cmp.Or(cmp.Compare(a.ready, b.ready), cmp.Compare(b.endpoints, a.endpoints))
		case ByRate:
			order = cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(b.of.Connections, a.of.Connections))
		}
		return cmp.Or(order, cmp.Compare(a.of.Namespace, b.of.Namespace), cmp.Compare(a.of.Name, b.of.Name))
	})
}

func (r *row) rateText() string {
	if r.rate < 0 {
		return unknown
	}
	return number(r.rate)
}

func (r *row) total() string {
	if !r.counted {
		return unknown
	}
	return strconv.FormatUint(r.of.Connections, 10)
}

func (r *row) bytes() string {
	if !r.counted {
		return unknown
	}
	return size(r.of.FirstPacketBytes)
}

// number is a rate: one digit behind the point while that says something.
func number(n float64) string {
	if n > 0 && n < 99.95 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// size is a number of bytes: 999, 1.5K, 23M.
func size(bytes uint64) string {
	if bytes < 1000 {
		return strconv.FormatUint(bytes, 10)
	}
	n, units := float64(bytes)/1024, "KMGTPE"
	for n >= 999.5 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	if n < 9.95 {
		return fmt.Sprintf("%.1f%c", n, units[0])
	}
	return fmt.Sprintf("%.0f%c", n, units[0])
}

// title is the first line.
func (t *Table) title() string {
	text := fmt.Sprintf("%s, %s: %d Services", t.counts.Node, t.counts.Mode, len(t.rows))
	if len(t.rows) == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	if t.counts.NotCounted == "" {
		text += ", " + t.sum + " new connections/s"
		if t.over != "" {
			text += " over " + t.over
		}
	}
	return printable(text)
}

// A column other than the name. They stand in the order of columns, and go from the end of dropped when there is no room.
type column struct {
	head  string
	key   Key
	width int
	cell  func(*row) string
}

var columns = []column{
	{"NEW/S", ByRate, 8, (*row).rateText},
	{"TOTAL", ByTotal, 11, (*row).total},
	{"ENDPOINTS", ByEndpoints, 11, func(r *row) string { return r.of.Ready() }},
	{"1ST-BYTES", ByBytes, 11, (*row).bytes},
}

// dropped are the columns that a narrow terminal has no room for, the first to go first.
var dropped = []Key{ByBytes, ByTotal, ByEndpoints, ByRate}

// enough is a width of the name for which a column is given up when there is less.
const enough = 20

// fit chooses the columns for a width and returns what is left for the name.
func fit(width int) (chosen []column, name int) {
	chosen, name = slices.Clone(columns), width
	for _, c := range columns {
		name -= c.width
	}
	for _, key := range dropped {
		if name >= enough {
			break
		}
		i := slices.IndexFunc(chosen, func(c column) bool { return c.key == key })
		name += chosen[i].width
		chosen = slices.Delete(chosen, i, i+1)
	}
	return chosen, max(name, 0)
}

// lines writes the head and then rows in this width.
func lines(rows []row, width int) []string {
	chosen, name := fit(width)
	out := make([]string, 0, len(rows)+1)
	write := func(first string, cell func(*column) string) {
		var b strings.Builder
		b.WriteString(pad(first, name))
		for i := range chosen {
			text := cell(&chosen[i])
			if room := chosen[i].width - 1; len(text) > room {
				text = text[:room-1] + "~"
			}
			b.WriteString(strings.Repeat(" ", chosen[i].width-len(text)))
			b.WriteString(text)
		}
		out = append(out, b.String())
	}
	write("SERVICE", func(c *column) string { return c.head })
	for i := range rows {
		write(rows[i].name(), func(c *column) string { return c.cell(&rows[i]) })
	}
	return out
}

// pad makes text as long as width; what is cut off is marked.
func pad(text string, width int) string {
	if len(text) > width {
		return text[:max(width-1, 0)] + "~"[:min(width, 1)]
	}
	return text + strings.Repeat(" ", width-len(text))
}

// Text is the table for what is no terminal: as wide as the longest name needs.
func (t *Table) Text(by Key) string {
	t.sort(by)
	width := len("SERVICE")
	for i := range t.rows {
		width = max(width, len(t.rows[i].name()))
	}
	for _, c := range columns {
		width += c.width
	}
	text := t.title() + "\n"
	if t.counts.NotCounted != "" {
		text += t.counts.NotCounted + "\n"
	}
	return text + strings.Join(lines(t.rows, max(width, minWidth)), "\n") + "\n"
}

// minWidth is the least width that has all columns.
const minWidth = enough + 8 + 11 + 11 + 11
