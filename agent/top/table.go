// Package top is the table of `sluice top`: the Services by new connections.
package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/agent/status"
)

// Table is what one reading shows.
type Table struct {
	counts status.Counts
	rates  status.Rates
}

type row = status.ServiceRate

// NewTable compares two readings. The earlier one may be empty: then there are no rates. namespace keeps others out; empty is all.
func NewTable(earlier, later status.Counts, namespace string) *Table {
	return &Table{later, status.NewRates(&earlier, &later, namespace)}
}

func name(r *row) string { return printable(r.Namespace + "/" + r.Name) }

func sizeText(r *row) string {
	if !r.Counted {
		return status.Unknown
	}
	return size(r.FirstPacketBytes)
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
	text := fmt.Sprintf("%s, %s: %d Services", t.counts.Node, t.counts.Mode, len(t.rates.Services))
	if len(t.rates.Services) == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	if t.counts.NotCounted == "" {
		text += ", " + status.RateText(t.rates.Sum) + " new connections/s"
		if t.rates.Over > 0 {
			text += fmt.Sprintf(" over %.1fs", t.rates.Over.Seconds())
		}
	}
	return printable(text)
}

// column is one beside the name.
type column struct {
	head  string
	key   status.Key
	width int
	cell  func(*row) string
}

var columns = []column{
	{"NEW/S", status.ByRate, 8, func(r *row) string { return status.RateText(r.Rate) }},
	{"TOTAL", status.ByTotal, 11, (*row).Total},
	{"ENDPOINTS", status.ByEndpoints, 11, func(r *row) string { return r.Ready() }},
	{"1ST-BYTES", status.ByBytes, 11, sizeText},
}

// dropped are the columns that a narrow terminal has no room for, the first to go first.
var dropped = []status.Key{status.ByBytes, status.ByTotal, status.ByEndpoints, status.ByRate}

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
	chosen, room := fit(width)
	out := make([]string, 0, len(rows)+1)
	write := func(first string, cell func(*column) string) {
		var b strings.Builder
		b.WriteString(pad(first, room))
		for i := range chosen {
			text := cell(&chosen[i])
			if most := chosen[i].width - 1; len(text) > most {
				text = text[:most-1] + "~"
			}
			b.WriteString(strings.Repeat(" ", chosen[i].width-len(text)))
			b.WriteString(text)
		}
		out = append(out, b.String())
	}
	write("SERVICE", func(c *column) string { return c.head })
	for i := range rows {
		write(name(&rows[i]), func(c *column) string { return c.cell(&rows[i]) })
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
func (t *Table) Text(by status.Key) string {
	t.rates.Sort(by)
	width := len("SERVICE")
	for i := range t.rates.Services {
		width = max(width, len(name(&t.rates.Services[i])))
	}
	for _, c := range columns {
		width += c.width
	}
	text := t.title() + "\n"
	if t.counts.NotCounted != "" {
		text += t.counts.NotCounted + "\n"
	}
	return text + strings.Join(lines(t.rates.Services, max(width, minWidth)), "\n") + "\n"
}

// minWidth is the least width that has all columns.
const minWidth = enough + 8 + 11 + 11 + 11
