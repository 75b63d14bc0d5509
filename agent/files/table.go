package files

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

// table knows which document describes which object, and what was handed on. It
// holds no objects: only their names and the hashes of their texts, so that a
// changed file costs what changed in it.
type table struct {
	entries map[key]*entry
	// touched are the entries whose claims changed since they were last resolved.
	touched map[*entry]struct{}
	// doubles are the entries that some document describes in vain, as another comes first.
	doubles map[*entry]struct{}
}

func newTable() *table {
	return &table{
		entries: make(map[key]*entry),
		touched: make(map[*entry]struct{}),
		doubles: make(map[*entry]struct{}),
	}
}

// names returns the objects of a kind that were handed on, or that a document names which
// cannot be taken up: an earlier run may have known them, and they stay as they were.
func (t *table) names(kind source.Kind) map[source.Name]struct{} {
	names := map[source.Name]struct{}{}
	for k, e := range t.entries {
		if k.kind == kind && (e.live || len(e.claims) > 0) {
			names[source.Name{Namespace: k.namespace, Name: k.name}] = struct{}{}
		}
	}
	return names
}

// entry is an object that some document describes.
type entry struct {
	key key
	// created is the object's creationTimestamp in seconds since 1970; 0 until it is handed on.
	created int64
	// live tells whether the object was handed on and not taken back; sent is its hash then.
	live bool
	sent uint64
	// owner is the claim that is in use; nil if there is none. It may be one of a
	// document that is gone until the entry is resolved.
	owner *claim
	// claims of all documents, in the order of files and documents.
	claims []*claim
}

// claim is one document's word about one object.
type claim struct {
	entry *entry
	doc   *document
	hash  uint64
	state claimState
	// object is there from decoding until it is handed on.
	object metav1.Object
}

type claimState uint8

const (
	// described: the document describes the object.
	described claimState = iota
	// refused: what the document says of the object cannot be used.
	refused
	// held: as refused, but the file described the object before; it stays as it was.
	held
	// guessed: the file described the object before, and may do so again: its document
	// that did may be one that cannot be read, or the file is being replaced. The object
	// stays as it was unless another document describes it.
	guessed
)

// document is what is remembered of one document.
type document struct {
	file         *file
	number, line int32
	hash         uint64 // of its text
	claims       []claim
	// fresh: it was decoded just now, and is in no version of its file yet.
	fresh bool
	// unnamed: something in it cannot be read so far as to tell which object it describes.
	unnamed  bool
	problems []string
}

// add makes a document's claims count.
func (t *table) add(d *document) {
	for i := range d.claims {
		c := &d.claims[i]
		at, _ := slices.BinarySearchFunc(c.entry.claims, c, compareClaims)
		c.entry.claims = slices.Insert(c.entry.claims, at, c)
		t.touched[c.entry] = struct{}{}
	}
}

func compareClaims(a, b *claim) int {
	if a.doc.file != b.doc.file {
		return strings.Compare(a.doc.file.name, b.doc.file.name)
	}
	return cmp.Compare(a.doc.number, b.doc.number)
}

// entryOf returns the entry of an object, made if need be.
func (t *table) entryOf(k key) *entry {
	e := t.entries[k]
	if e == nil {
		e = &entry{key: k}
		t.entries[k] = e
		t.touched[e] = struct{}{}
	}
	return e
}

// replace puts a file's new version, as a list of documents, in the place of the
// one before. Documents may be in both.
func (t *table) replace(f *file, docs []*document) {
	known := make(map[*entry]struct{}) // what the version before spoke of
	for _, d := range f.docs {
		for i := range d.claims {
			e := d.claims[i].entry
			known[e] = struct{}{}
			t.touched[e] = struct{}{}
			e.claims = slices.DeleteFunc(e.claims, func(c *claim) bool { return c.doc.file == f })
		}
	}
	told := make(map[*entry]bool) // what the new version speaks of; true: it describes it
	for _, d := range docs {
		for i := range d.claims {
			c := &d.claims[i]
			told[c.entry] = told[c.entry] || c.state == described
		}
	}
	for _, d := range docs {
		if !d.fresh {
			continue
		}
		d.fresh = false
		mayBeAny := d.unnamed
		for i := range d.claims {
			c := &d.claims[i]
			if c.state != refused {
				continue
			}
			if c.entry.ownedBy(f) && !told[c.entry] {
				c.state = held
			} else if _, before := known[c.entry]; !before {
				mayBeAny = true // its name may be what was changed
			}
		}
		if mayBeAny {
			for e := range known {
				if _, speaks := told[e]; !speaks && e.ownedBy(f) {
					d.claims = append(d.claims, claim{entry: e, doc: d, state: guessed})
				}
			}
		}
	}
	f.docs = docs
	for _, d := range docs {
		t.add(d)
	}
}

// yield makes what a file describes stay only until another file describes it. The
// file has to be decoded again if it comes back.
func (t *table) yield(f *file) {
	for _, d := range f.docs {
		d.hash = 0
		for i := range d.claims {
			if c := &d.claims[i]; c.state != refused {
				c.state = guessed
				t.touched[c.entry] = struct{}{}
			}
		}
	}
}

// extend adds documents to a file that is being read for the first time.
func (t *table) extend(f *file, docs []*document) {
	for _, d := range docs {
		d.fresh = false
		t.add(d)
	}
	f.docs = append(f.docs, docs...)
}

// ownedBy tells whether the object is in use as a file described it.
func (e *entry) ownedBy(f *file) bool {
	return e.live && e.owner != nil && e.owner.doc.file == f
}

// winner returns the claim that is to be in use, or nil.
func (e *entry) winner() *claim {
	var first, hold, guess *claim
	for _, c := range e.claims {
		switch {
		case c.state == described && first == nil:
			first = c
		case c.state == held && hold == nil && e.ownedBy(c.doc.file):
			hold = c
		case c.state == guessed && guess == nil && e.ownedBy(c.doc.file):
			guess = c
		}
	}
	switch {
	case first == nil && hold == nil:
		return guess
	case first == nil:
		return hold
	case hold == nil, first.doc.file == hold.doc.file, compareClaims(first, hold) < 0:
		return first
	}
	return hold
}

// resolve decides every touched entry anew. It returns the changes, and the claims
// that are to be in use but whose objects are not at hand: those stay touched.
func (t *table) resolve() (changes []source.Change, missing []*claim) {
	for e := range t.touched {
		w := e.winner()
		switch {
		case w == nil:
			if e.live {
				changes = append(changes, e.change(nil))
			}
			e.live, e.owner = false, nil
		case w.state == described && !(e.live && e.sent == w.hash):
			if w.object == nil {
				missing = append(missing, w)
				continue
			}
			e.stamp(w)
			changes = append(changes, e.change(w.object))
			e.live, e.sent, e.owner = true, w.hash, w
		default:
			e.owner = w
		}
		delete(t.touched, e)
		if len(e.claims) == 0 {
			delete(t.entries, e.key)
		}
		if e.release() {
			t.doubles[e] = struct{}{}
		} else {
			delete(t.doubles, e)
		}
	}
	if len(t.touched) == 0 {
		t.touched = make(map[*entry]struct{}) // a map never shrinks
	}
	slices.SortFunc(changes, compareChanges)
	return changes, missing
}

// release lets go of the objects of an entry's claims, and tells whether a claim
// that describes the entry lost to another.
func (e *entry) release() (lost bool) {
	for _, c := range e.claims {
		c.object = nil
		lost = lost || c.state == described && c != e.owner
	}
	return lost
}

// stamp gives an object a creationTimestamp if its document sets none: that of
// the object's version before, else the time of its file. Services that claim the
// same address or port are ordered by it, the older one first; so an edit does not
// make a Service younger, and a new file does not take what another has.
func (e *entry) stamp(c *claim) {
	if own := c.object.GetCreationTimestamp(); !own.IsZero() {
		e.created = own.Unix()
		return
	}
	if e.created == 0 {
		e.created = c.doc.file.id.mtime / 1e9
	}
	c.object.SetCreationTimestamp(metav1.Unix(e.created, 0))
}

func (e *entry) change(obj metav1.Object) source.Change {
	return source.Change{Kind: e.key.kind, Namespace: e.key.namespace, Name: e.key.name, Object: obj}
}

// compareChanges puts what goes before what comes, and else goes by name, so
// that what a scan hands on does not depend on chance.
func compareChanges(a, b source.Change) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		strings.Compare(string(a.Kind), string(b.Kind)),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	)
}

func rank(c source.Change) int {
	if c.Object == nil {
		return 0
	}
	return 1
}
