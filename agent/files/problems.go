package files

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/agent/source"
)

// writerGrace is how long a file may be open for writing before that is a
// problem, and how long the first complete picture waits for its writer.
const writerGrace = 5 * time.Second

// report hands the list of problems on if it changed, and logs those that are new and those that are gone.
func (s *Source) report(sink source.Sink) {
	now := time.Now()
	list := s.problems(now)
	if slices.EqualFunc(list, s.reported, sameProblem) {
		return
	}
	type text struct{ where, reason string }
	before := make(map[text]time.Time, len(s.reported))
	for _, p := range s.reported {
		before[text{p.Where, p.Reason}] = p.Since
	}
	for i := range list {
		p := &list[i]
		if since, known := before[text{p.Where, p.Reason}]; known {
			p.Since = since
			delete(before, text{p.Where, p.Reason})
			continue
		}
		p.Since = now.Truncate(time.Second).UTC()
		s.options.Log.Warn("a problem with a manifest", "where", p.Where, "reason", p.Reason)
	}
	for _, p := range s.reported {
		if _, gone := before[text{p.Where, p.Reason}]; gone {
			s.options.Log.Info("a problem with a manifest is gone", "where", p.Where, "reason", p.Reason)
		}
	}
	s.reported = list
	sink.SetProblems(slices.Clone(list))
}

func sameProblem(a, b source.Problem) bool { return a.Where == b.Where && a.Reason == b.Reason }

// problems lists everything that cannot be taken up at present, in the order of files and documents.
func (s *Source) problems(now time.Time) []source.Problem {
	var list []source.Problem
	add := func(where, reason string) {
		list = append(list, source.Problem{Where: where, Reason: reason})
	}
	if s.dirProblem != "" {
		add(s.dir, s.dirProblem)
	}
	doubles := s.doubles()
	for _, f := range s.files {
		if !f.goneSince.IsZero() {
			continue // there is nothing to mend any more
		}
		path := filepath.Join(s.dir, f.name)
		if f.problem != "" {
			add(path, f.problem)
		} else if !f.busySince.IsZero() && now.Sub(f.busySince) > writerGrace {
			add(path, "a process has the file open for writing: it is taken up when that is closed")
		}
		told := 0
		for _, d := range f.docs {
			reasons := d.reasons()
			for _, c := range doubles[d] {
				reasons = append(reasons, fmt.Sprintf("%v: %s describes it already, and that is used: remove one of the two", c.entry.key, c.entry.owner.doc.place()))
			}
			for _, reason := range reasons {
				if told < maxTrouble {
					add(s.where(d), reason)
				}
				told++
			}
		}
		if told > maxTrouble {
			add(path, fmt.Sprintf("%d more problems in this file", told-maxTrouble))
		}
	}
	return list
}

// doubles returns the claims that lost to another document, by their own document.
func (s *Source) doubles() map[*document][]*claim {
	lost := make(map[*document][]*claim)
	for e := range s.table.doubles {
		for _, c := range e.claims {
			if c.state == described && c != e.owner {
				lost[c.doc] = append(lost[c.doc], c)
			}
		}
	}
	for _, claims := range lost {
		slices.SortFunc(claims, func(a, b *claim) int { return strings.Compare(a.entry.key.String(), b.entry.key.String()) })
	}
	return lost
}

// place names a document within the directory.
func (d *document) place() string { return fmt.Sprintf("%s, document %d", d.file.name, d.number) }

func (s *Source) where(d *document) string {
	return fmt.Sprintf("%s, document %d (line %d)", filepath.Join(s.dir, d.file.name), d.number, d.line)
}

// reasons returns what is wrong with a document, and says what stays in use because of it.
func (d *document) reasons() []string {
	if len(d.problems) == 0 {
		return nil
	}
	var kept []string
	for i := range d.claims {
		if c := &d.claims[i]; c == c.entry.owner && c.state != described {
			kept = append(kept, c.entry.key.String())
		}
	}
	reasons := slices.Clone(d.problems)
	for i := range reasons {
		reasons[i] = fileLine(reasons[i], d.line)
	}
	if len(kept) > 0 {
		slices.Sort(kept)
		more := ""
		if n := len(kept) - 3; n > 0 {
			kept, more = kept[:3], fmt.Sprintf(" and %d more", n)
		}
		last := &reasons[len(reasons)-1]
		*last += fmt.Sprintf(" (until this is mended, %s%s: as before)", strings.Join(kept, ", "), more)
	}
	return reasons
}

// lineNumber is how the decoders begin an error that has a place but no field.
var lineNumber = regexp.MustCompile(`^line (\d+)`)

// fileLine turns the line of a document that a message begins with into that of its file.
func fileLine(reason string, first int32) string {
	return lineNumber.ReplaceAllStringFunc(reason, func(m string) string {
		n, err := strconv.Atoi(m[len("line "):])
		if err != nil {
			return m
		}
		return "line " + strconv.Itoa(n+int(first)-1)
	})
}
