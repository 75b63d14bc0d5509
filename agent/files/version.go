package files

import "slices"

// version is a file's new version while it is read.
type version struct {
	file *file
	// first: the file described nothing before, so that its documents may be used before all are read.
	first bool
	docs  []*document
	at    []place
}

// place is where a document is in its file.
type place struct{ number, line int32 }

func (v *version) add(d *document, t *task) {
	v.docs = append(v.docs, d)
	v.at = append(v.at, place{t.number, t.line})
}

// cut returns the documents gathered so far, each at its place, and forgets them.
func (v *version) cut() []*document {
	for i, d := range v.docs {
		d.number, d.line = v.at[i].number, v.at[i].line
	}
	docs := slices.Clip(v.docs)
	v.docs, v.at = nil, nil
	return docs
}

// documentOf returns the document of a task: that of the version before if its text is the same.
func (s *Source) documentOf(t *task) *document {
	if t.same != nil {
		return t.same
	}
	s.noteIgnored(t.file, t.decoded.ignored)
	return s.newDocument(t)
}
