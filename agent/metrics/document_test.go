package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

const document = "../../docs/metrics.md"

// The lines around the table that is made from the code.
const (
	tableBegin = "<!-- made by: go test ./agent/metrics -run TestDocument -update -->\n"
	tableEnd   = "<!-- end -->\n"
)

func table(descs []Desc) string {
	var b strings.Builder
	b.WriteString(tableBegin + "\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range descs {
		var labels []string
		for _, l := range d.Labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, strings.Join(labels, ", "), d.Help)
	}
	b.WriteString("\n" + tableEnd)
	return b.String()
}

// TestDocument compares docs/metrics.md with what there is.
func TestDocument(t *testing.T) {
	r := newRecorder(t, newClock())
	file, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(file), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has not the lines around the table", document)
	}
	want := before + table(r.Descs()) + after
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(file)); diff != "" {
		t.Errorf("%s is not up to date; run: go test ./agent/metrics -run TestDocument -update (-want +got)\n%s", document, diff)
	}
	descs := map[string]Desc{}
	for _, d := range r.Descs() {
		descs[d.Name] = d
		if d.Help == "" || strings.HasSuffix(d.Help, ".") || strings.ContainsAny(d.Help, "|\n\\") {
			t.Errorf("%s: the help text %q", d.Name, d.Help)
		}
	}
	for name, p := range scrape(t, r) {
		d, ok := descs[name]
		if !ok { // of the library
			if !strings.Contains(after, "`"+name+"`") {
				t.Errorf("%s is not in %s", name, document)
			}
			continue
		}
		if string(d.Type) != p.typ || d.Help != p.help {
			t.Errorf("%s is shown as %s: %q", name, p.typ, p.help)
		}
		for _, l := range p.labelNames() {
			if !strings.Contains(" "+strings.Join(d.Labels, " ")+" ", " "+l+" ") {
				t.Errorf("%s has the label %s", name, l)
			}
		}
	}
}
