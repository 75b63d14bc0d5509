package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// parsed is a metric as it is read back from the text format. Its samples are under
// their labels, and behind a histogram's under the suffix and the labels.
type parsed struct {
	typ, help string
	samples   map[string]float64
}

// labelNames lists the names of the labels of all samples, without le.
func (p parsed) labelNames() []string {
	names := map[string]bool{}
	for labels := range p.samples {
		_, labels, _ = strings.Cut(labels, "{")
		for _, part := range strings.Split(strings.TrimSuffix(labels, "}"), ",") {
			if name, _, ok := strings.Cut(part, "="); ok && name != "le" {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// bounds lists the upper bounds of a histogram's buckets, as they are written.
func (p parsed) bounds() []string {
	found := map[string]float64{}
	for labels := range p.samples {
		if _, rest, ok := strings.Cut(labels, `le="`); ok {
			bound, _, _ := strings.Cut(rest, `"`)
			found[bound], _ = strconv.ParseFloat(bound, 64)
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		if found[a] < found[b] {
			return -1
		}
		return 1
	})
}

// parse reads the text format, as strictly as its description has it.
func parse(t testing.TB, text string) map[string]parsed {
	t.Helper()
	all := map[string]parsed{}
	open := ""
	if !strings.HasSuffix(text, "\n") {
		t.Error("the text does not end with a new line")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if _, twice := all[name]; twice {
				t.Errorf("%s is there twice", name)
			}
			all[name] = parsed{help: help, samples: map[string]float64{}}
			open = name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, typ, _ := strings.Cut(rest, " ")
			p, ok := all[name]
			if !ok { // without a HELP line
				p.samples = map[string]float64{}
			}
			if len(p.samples) > 0 || p.typ != "" {
				t.Errorf("TYPE of %s in the wrong place", name)
			}
			p.typ = typ
			all[name] = p
			open = name
			continue
		}
		name, labels, value, err := parseSample(line)
		if err != nil {
			t.Fatalf("%v in the line %q", err, line)
		}
		family, suffix := name, ""
		if all[open].typ == "histogram" || all[open].typ == "summary" {
			for _, s := range []string{"_bucket", "_sum", "_count"} {
				if name == open+s {
					family, suffix = open, s
				}
			}
		}
		p, ok := all[family]
		if !ok {
			p = parsed{typ: "untyped", samples: map[string]float64{}}
			all[family] = p
		} else if family != open && p.typ != "untyped" {
			t.Errorf("a sample of %s stands among those of %s", family, open)
		}
		if _, twice := p.samples[suffix+labels]; twice {
			t.Errorf("%s%s is there twice", name, labels)
		}
		p.samples[suffix+labels] = value
	}
	for name, p := range all {
		if p.typ == "histogram" {
			checkHistogram(t, name, p)
		}
	}
	return all
}

func parseSample(line string) (name, labels string, value float64, err error) {
	end := strings.IndexAny(line, "{ ")
	if end < 1 {
		return "", "", 0, fmt.Errorf("no name")
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		quoted, i := false, 1
		for ; i < len(rest) && (quoted || rest[i] != '}'); i++ {
			switch {
			case quoted && rest[i] == '\\':
				i++
			case rest[i] == '"':
				quoted = !quoted
			}
		}
		if i >= len(rest) {
			return "", "", 0, fmt.Errorf("labels without end")
		}
		labels, rest = rest[:i+1], rest[i+1:]
	}
	text, ok := strings.CutPrefix(rest, " ")
	if !ok {
		return "", "", 0, fmt.Errorf("no blank before the value")
	}
	value, err = strconv.ParseFloat(text, 64)
	return name, labels, value, err
}

// checkHistogram checks that the buckets of every series grow and end in the count.
func checkHistogram(t testing.TB, name string, p parsed) {
	t.Helper()
	series := map[string]map[float64]float64{} // by labels without le: count by bound
	for labels, count := range p.samples {
		before, rest, ok := strings.Cut(strings.TrimPrefix(labels, "_bucket"), `le="`)
		if !ok {
			continue
		}
		bound, after, _ := strings.Cut(rest, `"`)
		key := strings.TrimSuffix(before, ",") + after
		if key == "{}" {
			key = ""
		}
		if series[key] == nil {
			series[key] = map[float64]float64{}
		}
		upper, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			t.Errorf("%s: bound %q", name, bound)
		}
		series[key][upper] = count
	}
	for key, buckets := range series {
		last := 0.0
		for _, bound := range slices.Sorted(maps.Keys(buckets)) {
			if buckets[bound] < last {
				t.Errorf("%s%s: fewer than %g up to %g", name, key, last, bound)
			}
			last = buckets[bound]
		}
		if count, ok := p.samples["_count"+key]; !ok || buckets[math.Inf(1)] != count {
			t.Errorf("%s%s: %g in the last bucket, count is %g", name, key, buckets[math.Inf(1)], count)
		}
		if _, ok := p.samples["_sum"+key]; !ok {
			t.Errorf("%s%s: no sum", name, key)
		}
	}
}

// scrape writes the metrics and reads them back.
func scrape(t testing.TB, r *Recorder) map[string]parsed {
	t.Helper()
	var page bytes.Buffer
	r.Write(&page)
	return parse(t, page.String())
}
