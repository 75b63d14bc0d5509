package files

import (
	"os"
	"slices"
)

// load decodes the documents that claims of theirs are to be used of, from files
// that did not change: another file that described the same objects before does not any more.
func (s *Source) load(dir *os.File, missing []*claim) {
	slices.SortFunc(missing, compareClaims)
	for len(missing) > 0 {
		f := missing[0].doc.file
		n := slices.IndexFunc(missing, func(c *claim) bool { return c.doc.file != f })
		if n < 0 {
			n = len(missing)
		}
		s.loadFrom(dir, f, missing[:n])
		missing = missing[n:]
	}
}

func (s *Source) loadFrom(dir *os.File, f *file, missing []*claim) {
	in, result := open(dir, f)
	if in == nil {
		return
	}
	defer in.Close()
	if result.id != f.id {
		return // the next scan reads it anyway
	}
	wanted := make(map[int32]*document)
	for _, c := range missing {
		wanted[c.doc.number] = c.doc
	}
	split := newSplitter(in, isJSON(f.name))
	for len(wanted) > 0 {
		c, err := split.next(nil)
		if err != nil {
			return
		}
		d := wanted[c.number]
		delete(wanted, c.number)
		if d == nil || c.fault != "" || s.decoder.hash(c.text) != d.hash {
			continue
		}
		again := s.newDocument(&task{file: f, decoded: s.decoder.decode(c.text, isJSON(f.name))})
		for i := range min(len(again.claims), len(d.claims)) {
			d.claims[i].object = again.claims[i].object
		}
	}
}
