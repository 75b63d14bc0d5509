package page

import (
	"fmt"
	"slices"
	"strings"

	"sluice/agent/status"
	"sluice/proxy"
)

const (
	// maxRows is how many Services one page shows.
	maxRows = 200
	// maxNotServed is how many things that are not served are told of one Service.
	maxNotServed = 3
	// maxListed is how many of its addresses or ports are.
	maxListed = 6
)

// table is that of the Services.
func (d *document) table(m *markup) {
	m.add("<h2>Services")
	all := len(d.rates.Services)
	if all > len(d.shown) {
		m.add(" <small>%d to %d of %d</small>", d.query.from+1, d.query.from+len(d.shown), all)
	}
	m.add("</h2>\n<nav>by")
	for _, order := range orders {
		d.choice(m, string(order), d.query.sort == order, func(q *query) { q.sort, q.from = order, 0 })
	}
	if d.rates.Over > 0 {
		m.add(" <span>rates over %s s</span>", fmt.Sprintf("%.1f", d.rates.Over.Seconds()))
	}
	if d.counts.NotCounted != "" {
		m.add(" <span>%s</span>", d.counts.NotCounted)
	}
	m.add("</nav>\n")
	if all == 0 {
		m.add(`<ul><li class="dim">There are no Services yet.</li></ul>` + "\n")
		return
	}
	m.add(`<table><thead><tr><th>Service</th><th>Address</th><th>Ports</th><th>Type</th><th class="n">Endpoints ready</th><th class="n">New/s</th><th class="n">Total</th></tr></thead><tbody>` + "\n")
	for i := range d.shown {
		r := &d.shown[i]
		s := d.services[proxy.ServiceName{Namespace: r.Namespace, Name: r.Name}]
		row(m, r, &s)
	}
	m.add("</tbody></table>\n")
	d.pages(m)
}

func row(m *markup, r *status.ServiceRate, s *status.Service) {
	m.add(`<tr><td class="s">%s/%s`, r.Namespace, r.Name)
	for _, what := range s.NotServed[:min(len(s.NotServed), maxNotServed)] {
		m.add(`<small class="bad">%s</small>`, what)
	}
	if more := len(s.NotServed) - maxNotServed; more > 0 {
		m.add(`<small class="bad">and %d more</small>`, more)
	}
	class := "n"
	if r.ReadyEndpoints < r.AllEndpoints || r.AllEndpoints == 0 {
		class = "n bad"
	}
	m.add(`</td><td class="a">%s</td><td class="p">%s</td><td class="t">%s</td>`,
		list(append(slices.Clone(s.ClusterIPs), s.ExternalIPs...)), list(strings.Split(s.PortList(), ",")), s.Type)
	m.add(`<td class="%s" data-l="ready">%s</td><td class="n" data-l="new/s">%s</td><td class="n" data-l="total">%s</td></tr>`+"\n",
		class, r.Ready(), status.RateText(r.Rate), r.Total())
}

func list(items []string) string {
	if more := len(items) - maxListed; more > 0 {
		items = append(slices.Clone(items[:maxListed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(items, ", ")
}

// pages are links to the other rows.
func (d *document) pages(m *markup) {
	from, all := d.query.from, len(d.rates.Services)
	if all == len(d.shown) {
		return
	}
	m.add("<nav>")
	if from > 0 {
		d.choice(m, "previous", false, func(q *query) { q.from = max(from-maxRows, 0) })
	}
	if from+maxRows < all {
		d.choice(m, "next", false, func(q *query) { q.from = from + maxRows })
	}
	m.add("</nav>\n")
}
