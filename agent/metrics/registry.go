package metrics

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// Type is a metric's type, as the TYPE lines of the Prometheus text format have it.
type Type string

// The types in use.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Desc is what is told of a metric.
type Desc struct {
	Name   string
	Type   Type
	Labels []string
	// Help is its meaning, in one sentence without full stop.
	Help string
}

// family is a metric with all its series. Each has a Set of its own, so that
// HELP and TYPE can stand before it: the library writes them only when a global switch says
// so, and without the meaning.
type family struct {
	Desc
	set *metrics.Set
	// collect adds the series that are asked for at each scrape; nil for none.
	collect func(*page)
}

// registry holds the families in the order in which they are shown.
type registry struct{ families []*family }

func (r *registry) add(name string, typ Type, help string, labels ...string) *family {
	f := &family{Desc: Desc{Name: name, Type: typ, Labels: labels, Help: help}, set: metrics.NewSet()}
	r.families = append(r.families, f)
	return f
}

// collected adds a family whose series are asked for at each scrape.
func (r *registry) collected(name string, typ Type, help string, collect func(*page), labels ...string) {
	r.add(name, typ, help, labels...).collect = collect
}

// series is the name of a series in the text format.
func (f *family) series(values ...string) string { return f.Name + labelText(f.Labels, values) }

func (f *family) counter(values ...string) *metrics.Counter {
	return f.set.NewCounter(f.series(values...))
}

func (f *family) gauge(values ...string) *metrics.Gauge {
	return f.set.NewGauge(f.series(values...), nil)
}

func (f *family) histogram(buckets []float64, values ...string) *metrics.PrometheusHistogram {
	return f.set.NewPrometheusHistogramExt(f.series(values...), buckets)
}

// write writes all families in the text format, version 0.0.4. Those without a series are left out.
func (r *registry) write(to *bytes.Buffer) {
	for _, f := range r.families {
		begin := to.Len()
		fmt.Fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", f.Name, f.Help, f.Name, f.Type)
		head := to.Len()
		f.set.WritePrometheus(to)
		if f.collect != nil {
			f.collect(&page{to, f})
		}
		if to.Len() == head {
			to.Truncate(begin)
		}
	}
}

// page is where the series of a collected family are put.
type page struct {
	*bytes.Buffer
	family *family
}

// value adds a series.
func (p *page) value(v float64, labels ...string) { p.line(labelText(p.family.Labels, labels), v) }

// line adds a series whose labels are in the text format already.
func (p *page) line(labels string, v float64) {
	p.WriteString(p.family.Name)
	p.WriteString(labels)
	p.WriteByte(' ')
	b := p.AvailableBuffer()
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		b = strconv.AppendInt(b, int64(v), 10) // not in the form 1e+06
	} else {
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	p.Write(append(b, '\n'))
}

// escape is how label values are written in the text format.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labelText(names, values []string) string {
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	for i, name := range names {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(name)
		b.WriteString(`="`)
		b.WriteString(escape.Replace(strings.ToValidUTF8(values[i], "\uFFFD")))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
