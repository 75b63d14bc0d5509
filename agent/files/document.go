package files

import (
	"slices"
	"strings"
	"time"

	"sluice/agent/source"
)

// file is what is remembered of one file of the directory.
type file struct {
	name string
	// id is that of the version that docs are of; with settled it need not be read
	// again while it has this id.
	id      fileID
	settled bool
	docs    []*document
	// link: it is a symbolic link.
	link bool
	// problem is why the file as a whole cannot be taken up.
	problem string
	// goneSince is since when the file is gone; zero: it is there.
	goneSince time.Time
	// busySince is since when it has been waited for its writer; zero: it is not.
	busySince time.Time
	// seen is the version last seen where leases do not work, seenAt when it was first seen.
	seen   fileID
	seenAt time.Time
	// ignored are the kinds found in it that are not read, each logged once.
	ignored []string
}

// Limits of what is said about one file, lest a file of junk fill the log.
const (
	maxTrouble = 100 // documents whose problems are told
	maxIgnored = 20  // kinds
	maxReason  = 1024
)

// newDocument makes a document of a task.
func (s *Source) newDocument(t *task) *document {
	d := &document{file: t.file, hash: t.hash, fresh: true}
	if t.decoded.refused != "" {
		d.problems = []string{clip(t.decoded.refused)}
		if t.decoded.named == (key{}) {
			d.unnamed = true
		} else {
			d.claims = []claim{{entry: s.table.entryOf(t.decoded.named), doc: d, state: refused}}
		}
	}
	for i := range t.decoded.objects {
		s.addObject(d, &t.decoded.objects[i])
	}
	d.claims = slices.Clip(d.claims)
	return d
}

// addObject makes a claim of one object of a document, and problems of what is wrong with it.
func (s *Source) addObject(d *document, o *object) {
	if o.key.kind == source.Node && s.options.NodeName != "" && o.key.name != s.options.NodeName {
		return
	}
	prefix := ""
	if o.key == (key{}) {
		d.unnamed = true
	} else {
		prefix = o.key.String() + ": "
		c := claim{entry: s.table.entryOf(o.key), doc: d, hash: o.hash, object: o.object}
		if o.object == nil {
			c.state = refused
		}
		d.claims = append(d.claims, c)
	}
	for _, reasons := range [][]string{o.refused, o.unserved} {
		if len(reasons) > 0 {
			d.problems = append(d.problems, clip(prefix+strings.Join(reasons, "; ")))
		}
	}
	for _, note := range o.notes {
		s.options.Log.Info("manifest", "file", d.file.name, "note", clip(prefix+note))
	}
}

// noteIgnored logs the kinds that are not read, once for each file.
func (s *Source) noteIgnored(f *file, kinds []string) {
	for _, k := range kinds {
		if slices.Contains(f.ignored, k) || len(f.ignored) >= maxIgnored {
			continue
		}
		f.ignored = append(f.ignored, k)
		s.options.Log.Info("objects of this kind are not read, and ignored", "file", f.name, "kind", clip(k))
	}
}

// clip shortens a text that repeats what a file holds to what is fit for a log.
func clip(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + " ..."
}
