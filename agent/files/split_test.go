package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	long := strings.Repeat("x", 3*bufferSize)
	tests := []struct {
		name   string
		isJSON bool
		text   string
		want   []string // number, line and text
	}{
		{"nothing", false, "", nil},
		{"comments", false, "# a\n\n---\n# b\n--- # c\n", nil},
		{"one", false, "a: b", []string{"1@1 a: b"}},
		{"markers", false, "---\na: b\n---\n---\n\nc: d\n", []string{"1@2 a: b\n", "2@6 c: d\n"}},
		{"content beside a marker", false, "--- {a: b}\n--- c\n---x\n", []string{"1@1 --- {a: b}\n", "2@2 --- c\n---x\n"}},
		{"a marker in a text block", false, "a: |\n  ---\n  b\n---\nc\n", []string{"1@1 a: |\n  ---\n  b\n", "2@5 c\n"}},
		{"the end of a document", false, "a\n...\n# x\n%YAML 1.1\n---\nb\n... # y\n", []string{"1@1 a\n", "2@6 b\n"}},
		{"DOS lines", false, "---\r\na\r\n---\r\nb\r\n", []string{"1@2 a\r\n", "2@4 b\r\n"}},
		{"a comment within", false, "a\n# ---\n#\nb\n", []string{"1@1 a\n# ---\n#\nb\n"}},
		{"a long line", false, "a\n---\n" + long + "\n---\nb", []string{"1@1 a\n", "2@3 " + long + "\n", "3@5 b"}},
		{"JSON", true, "{\"a\": \"}\\\"{\"}\n\n [1, {}]{\n\"b\":{}}", []string{`1@1 {"a": "}\"{"}`, "2@3 [1, {}]", "3@3 {\n\"b\":{}}"}},
		{"JSON and more", true, "{} x {}", []string{"1@1 {}", "2@1 x {}"}},
		{"JSON without an end", true, "{[", []string{"1@1 {["}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSplitter(strings.NewReader(tt.text), tt.isJSON)
			var got []string
			var buf []byte
			for {
				c, err := s.next(buf)
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d@%d %s%s", c.number, c.line, c.text, c.fault))
				buf = c.text
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooManyDocuments(t *testing.T) {
	s := newSplitter(strings.NewReader(strings.Repeat("a\n---\n", maxDocuments+10)), false)
	n := 0
	var last chunk
	for {
		c, err := s.next(nil)
		if err != nil {
			break
		}
		last = c
		n++
	}
	if n != maxDocuments+1 || last.fault != faultTooMuch {
		t.Errorf("%d documents, the last one with fault %q; want %d, and the fault", n, last.fault, maxDocuments+1)
	}
}

func TestWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	w, err := os.Create(path)
	must(t, err)
	defer w.Close()
	r, err := os.Open(path)
	must(t, err)
	defer r.Close()
	busy, known := writers(r)
	if !known {
		t.Skip("the filesystem of the temporary directory has no leases")
	}
	if !busy {
		t.Error("the writer was not seen")
	}
	w.Close()
	if busy, _ := writers(r); busy {
		t.Error("a writer was seen after it closed the file")
	}
	// The lease must not stay: the next writer would wait for 45 s (lease-break-time).
	again, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	again.Close()
}
