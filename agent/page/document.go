package page

import (
	"fmt"
	"strconv"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
)

// document is what one page shows.
type document struct {
	query    query
	status   status.Status
	now      time.Time
	counts   status.Counts
	rates    status.Rates
	shown    []status.ServiceRate // of rates
	services map[proxy.ServiceName]status.Service
}

func newDocument(q query, counts status.Counts, rates status.Rates) *document {
	d := &document{query: q, counts: counts, rates: rates, services: map[proxy.ServiceName]status.Service{}}
	d.rates.Sort(q.sort)
	if n := len(rates.Services); q.from >= n { // Services have gone
		d.query.from = max(n-1, 0) / maxRows * maxRows
	}
	d.shown = rates.Services[d.query.from:min(d.query.from+maxRows, len(rates.Services))]
	return d
}

// names are those of the Services that are shown.
func (d *document) names() (names []proxy.ServiceName) {
	for i := range d.shown {
		names = append(names, proxy.ServiceName{Namespace: d.shown[i].Namespace, Name: d.shown[i].Name})
	}
	return names
}

// describe adds what is shown of the Services beside their counters.
func (d *document) describe(services []status.Service) {
	for _, s := range services {
		d.services[proxy.ServiceName{Namespace: s.Namespace, Name: s.Name}] = s
	}
}

// html writes the page.
func (d *document) html() []byte {
	var m markup
	m.add(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">`)
	if d.query.refresh > 0 {
		m.add(`<meta http-equiv="refresh" content="%d">`, d.query.refresh)
	}
	health, class := "healthy", "pill"
	if !d.status.Healthy {
		health, class = "not healthy", "pill bad"
	}
	m.add("<title>sluice on %s: %s</title><style>%s</style></head><body><main>\n", d.status.Node, health, trusted(style))
	m.add(`<header><h1>sluice on %s</h1><span class="%s">%s</span></header>`+"\n", d.status.Node, class, health)
	sections := d.status.Sections(d.now)
	d.nav(&m, sections)
	if len(d.status.Reasons) > 0 {
		m.add(`<ul class="bad">`)
		for _, reason := range d.status.Reasons {
			m.add("<li>%s</li>", reason)
		}
		m.add("</ul>\n")
	}
	d.tiles(&m)
	d.table(&m)
	for i, section := range sections {
		m.add(`<h2 id="%s">%s</h2><ul>`, anchor(i), section.Title)
		for _, l := range section.Lines {
			m.add("<li>%s</li>", l)
		}
		m.add("</ul>\n")
	}
	m.add("<h2>Agent</h2><dl>")
	for i, f := range append([]status.Fact{{Key: "sluice", Text: d.status.Headline(d.now)}}, d.status.Facts(d.now)...) {
		switch {
		case f.Key != "" && i > 0:
			m.add("</dd>")
			fallthrough
		case f.Key != "":
			m.add("<dt>%s</dt><dd>%s", f.Key, f.Text)
		default:
			m.add("<br>%s", f.Text)
		}
	}
	m.add("</dd></dl>\n")
	m.add(`<footer>%s &middot; <a href="/metrics">metrics</a> &middot; <a href="/configz">configuration</a></footer></main></body></html>`+"\n", d.now.Format("2006-01-02 15:04:05 MST"))
	return m.Bytes()
}

func anchor(section int) string { return "section" + strconv.Itoa(section) }

// nav leads to what needs attention, and lets the visitor choose how often the page is loaded again.
func (d *document) nav(m *markup, sections []status.Section) {
	if len(sections) > 0 {
		m.add("<nav>")
		for i, section := range sections {
			m.add(`<a class="bad" href="#%s">%s: %d</a> `, anchor(i), section.Title, section.Count)
		}
		m.add("</nav>\n")
	}
	m.add("<nav>load again:")
	for _, seconds := range []int{0, 2, 10, 60} {
		text := strconv.Itoa(seconds) + " s"
		if seconds == 0 {
			text = "never"
		}
		d.choice(m, text, d.query.refresh == seconds, func(q *query) { q.refresh = seconds })
	}
	m.add("</nav>\n")
}

// choice is a link, or the name of what is chosen already.
func (d *document) choice(m *markup, text string, chosen bool, change func(*query)) {
	if chosen {
		m.add(" <b>%s</b>", text)
		return
	}
	m.add(` <a href="%s">%s</a>`, d.query.link(change), text)
}

func (d *document) tiles(m *markup) {
	repairs, ready, all := 0, 0, 0
	for _, f := range d.status.Families {
		repairs += f.Repairs
	}
	for i := range d.rates.Services {
		ready, all = ready+d.rates.Services[i].ReadyEndpoints, all+d.rates.Services[i].AllEndpoints
	}
	m.add(`<div class="tiles">`)
	for _, tile := range [...][2]string{
		{strconv.Itoa(len(d.rates.Services)), "Services"},
		{status.RateText(d.rates.Sum), "new connections/s"},
		{fmt.Sprintf("%d/%d", ready, all), "endpoints ready"},
		{strconv.Itoa(repairs), "repairs of rules"},
	} {
		m.add(`<div class="card"><b>%s</b><span class="dim">%s</span></div>`, tile[0], tile[1])
	}
	m.add("</div>\n")
}
