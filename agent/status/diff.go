package status

import (
	"context"
	"fmt"
	"io"

	"sluice/proxy"
)

// Diff is the document of `sluice diff`.
type Diff struct {
	// Items are what the kernel has not as it should, MaxDiff of each family at most.
	Items []FamilyDifference `json:"items"`
	// Count is how many there are.
	Count int `json:"count"`
	// Waiting: a change of the objects waits to be written, and its part of the differences goes with that.
	Waiting bool `json:"waiting,omitempty"`
}

// MaxDiff bounds the differences of a family that are listed.
const MaxDiff = 1000

// FamilyDifference is a difference in one family.
type FamilyDifference struct {
	Family proxy.Family `json:"family"`
	proxy.Difference
}

// Diff asks for what the kernel has not as it should.
func (c Client) Diff(ctx context.Context) (d Diff, err error) {
	err = c.getWithin(ctx, kernelTimeout, pathDiff, &d)
	return d, err
}

// Write writes the differences for people: + is missing in the kernel, - is too much in it.
func (d *Diff) Write(w io.Writer) error {
	where := ""
	for _, i := range d.Items {
		if at := i.What + " " + i.Where; at != where {
			where = at
			fmt.Fprintln(w, Printable(at))
		}
		if i.Want != "" {
			fmt.Fprintln(w, "  + "+Printable(i.Want))
		}
		if i.Have != "" {
			fmt.Fprintln(w, "  - "+Printable(i.Have))
		}
	}
	if more := d.Count - len(d.Items); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	text := "the kernel has all that it should have, and no more"
	if d.Count > 0 {
		text = count(d.Count, "difference") + ": + is missing in the kernel, - should not be there"
	}
	if d.Waiting {
		text += "; changes wait to be written"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
