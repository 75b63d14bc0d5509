package status

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"sluice/proxy"
)

// DryRun is what an agent that starts now would do.
type DryRun struct {
	Status Status
	// Why says why the mode was chosen, From where the objects are from.
	Why, From string
	// Parameters are those of the kernel that would be set.
	Parameters []string
	Diff       Diff
}

// Changes tells whether anything would change.
func (d *DryRun) Changes() bool { return d.Diff.Count+len(d.Parameters) > 0 }

// Write writes it for people: what was planned, and what of it the kernel does not have.
func (d *DryRun) Write(w io.Writer, now time.Time) error {
	s := &d.Status
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, f := range s.Facts(now) {
		switch f.Key {
		case "mode":
			f.Text += ": " + d.Why
		case "source":
			f.Text = d.From + s.objects()
		case "cache":
			continue // it would be opened at its place
		case proxy.IPv4.String(), proxy.IPv6.String():
			f.Text = s.plan(f.Key)
		}
		fmt.Fprintf(t, "%s\t%s\n", f.Key, Printable(f.Text))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := s.writeSections(w, now); err != nil {
		return err
	}
	if len(d.Parameters) > 0 {
		fmt.Fprintln(w, "\nKernel parameters that would be set:")
		for _, p := range d.Parameters {
			fmt.Fprintf(w, "  %s\n", p)
		}
	}
	fmt.Fprintln(w, "\nRules in the kernel, against the plan:")
	return d.Diff.Write(w)
}

// plan says what is planned in a family.
func (s *Status) plan(family string) string {
	for _, f := range s.Families {
		if f.Family.String() == family {
			return f.counts()
		}
	}
	return ""
}
