package files

import (
	"bytes"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"
)

// FuzzPlainYAML holds that what the quick way takes comes out as from the library.
func FuzzPlainYAML(f *testing.F) {
	for _, seed := range []string{
		serviceText(1), sliceText(1, 2), service(""), slice("addressType: IPv4"),
		"a: b\nc:\n- d: e\n  f: [g, 'h', {i: 1}]\n-   j\nk:\n  l: \"m n\"\n  # o\n\n  p:\nq: fd00::1\n",
		"a:\n  - b\n  -  c: 1\n     d: 2\ne: 10.43.0.0/16\nf: 1.5\n",
		"a: b: c", "a: b\n  c", "a: 1:30", "a: [b:c, d]", "a: {b: {c: []}}", "a: 0x1f\nb: 1e3\nc: 007\n",
		strings.Repeat("a", 1100) + ": b", // no key is as long
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := plainToJSON(text)
		if !ok {
			return
		}
		want, err := libraryToJSON(text)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q\n got %s\nwant %s, %v", text, got, want, err)
		}
	})
}

// TestPlainYAML does the same with texts that look like YAML, some of them with a fault in them.
func TestPlainYAML(t *testing.T) {
	w := yamlWriter{rand.New(rand.NewPCG(1, 2))}
	taken, total := 0, 50000
	for range total {
		text := w.mapping(0, 3)
		for w.IntN(3) == 0 {
			at := w.IntN(len(text))
			text = text[:at] + w.any(pieces...) + text[at+w.IntN(2):]
		}
		got, ok := plainToJSON([]byte(text))
		if !ok {
			continue
		}
		taken++
		want, err := libraryToJSON([]byte(text))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q\n got %s\nwant %s, %v", text, got, want, err)
		}
	}
	if taken < total/10 {
		t.Errorf("only %d texts of %d were taken, too few to say anything", taken, total)
	}
}

// pieces are what scalars, and faults, are made of.
var pieces = []string{
	"a", "kind", "a-b.c/d", "y", "No", "true", "null", "~", "0", "7", "10", "08", "1e3", "0x1f", "1_0", "1.5", "10.42.0.1", "10.0.0.0/8",
	"fd00::1", "2001:db8::1", "1:30:00", "2026-01-02", "12345678-1234-1234-1234-123456789abc", ".5", "-", "_", "/", "+",
	":", ": ", "\n", "\n  ", "- ", " ", "  ", "#", " # b", "[", "]", "{", "}", ", ", ",", "'", "''", "\"", "'c d'", "\"d\"", "[]", "{}",
	"\\", "|", ">", "&x ", "*x", "!!str ", "<<", "? ", "%", "@", "---\n", "...\n", "\t", "\r", "é",
}

type yamlWriter struct{ *rand.Rand }

func (w yamlWriter) any(list ...string) string { return list[w.IntN(len(list))] }

func (w yamlWriter) scalar() string {
	if w.IntN(4) == 0 {
		return w.any(pieces...)
	}
	return w.any(pieces[:26]...)
}

func (w yamlWriter) flow(depth int) string {
	switch n := w.IntN(4); {
	case n == 0 && depth > 0:
		return "[" + w.flow(depth-1) + w.any(", ", ", ", ",") + w.flow(depth-1) + "]"
	case n == 1 && depth > 0:
		return "{" + w.any("a", "b") + w.any(": ", ": ", ":") + w.flow(depth-1) + ", c: " + w.flow(0) + w.any("}", " }")
	}
	return w.any(w.scalar(), "'a b'", "\"c\"")
}

func (w yamlWriter) mapping(column, depth int) string {
	text := ""
	for i := range 1 + w.IntN(3) {
		if i > 0 {
			text += strings.Repeat(" ", column)
		}
		text += w.any("a", "b", "ports", "app.io/name", w.any(pieces...)) + ":"
		switch n := w.IntN(5); {
		case n == 0 && depth > 0:
			deeper := column + 1 + w.IntN(3)
			text += "\n" + strings.Repeat(" ", deeper) + w.mapping(deeper, depth-1)
		case n == 1 && depth > 0:
			text += "\n" + w.list(column+w.IntN(3), depth-1)
		case n == 2:
			text += w.any("\n", "\n\n", "\n# b\n")
		default:
			text += w.any(" ", "  ") + w.flow(1+w.IntN(3)) + "\n"
		}
	}
	return text
}

func (w yamlWriter) list(column, depth int) string {
	text := ""
	for range 1 + w.IntN(3) {
		space := 1 + w.IntN(3)/2
		text += strings.Repeat(" ", column) + "-" + strings.Repeat(" ", space)
		if w.IntN(2) == 0 {
			text += w.mapping(column+1+space, depth)
		} else {
			text += w.flow(1) + "\n"
		}
	}
	return text
}

// FuzzDecode holds that no document breaks the decoder, and that what is taken
// has what the rest of the program relies on.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		serviceText(1), sliceText(1, 2), service("type: NodePort\nports: [{port: 80, nodePort: 0}]"),
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a}}\n",
		"apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: a}\nspec: {cidrs: [10.43.0.0/16]}\n",
		"a: &a [*a]", "<<: {a: b}\nkind: Service", "kind: Service\nmetadata:\n  name: web\n x", "\x00",
	} {
		f.Add([]byte(seed), false)
		if raw, err := yamlToJSON([]byte(seed)); err == nil {
			f.Add(raw, true)
		}
	}
	d := decoder{seed: maphash.MakeSeed()}
	f.Fuzz(func(t *testing.T, text []byte, isJSON bool) {
		doc := d.decode(text, isJSON)
		for i := range doc.objects {
			o := &doc.objects[i]
			switch taken := o.object != nil; {
			case taken == (len(o.refused) > 0):
				t.Fatalf("object %v is taken: %v, refused: %q", o.key, taken, o.refused)
			case taken && (o.object.GetName() != o.key.name || o.object.GetNamespace() != o.key.namespace || o.key.name == ""):
				t.Fatalf("object %s/%s has the key %v", o.object.GetNamespace(), o.object.GetName(), o.key)
			case taken && o.object.GetManagedFields() != nil:
				t.Fatalf("object %v is not trimmed", o.key)
			}
		}
	})
}
