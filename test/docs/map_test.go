package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are all that people read, below the root of the tree.
func documents(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	list := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, f := range found {
		list = append(list, "docs/"+filepath.Base(f))
	}
	return list
}

// anchors are what the headings of a document can be linked by.
func anchors(text string) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(anchor, " ", "-"))
	}
	return list
}

// Links within the tree lead to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	for _, d := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(read(t, d), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := d
			if file != "" {
				target = filepath.Join(filepath.Dir(d), file)
			}
			if _, err := os.Stat("../../" + target); err != nil {
				t.Errorf("%s links to %s: %v", d, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", d, m[1], target)
			}
		}
	}
}

// docs/design.md names all packages of the program.
func TestRooms(t *testing.T) {
	design := read(t, "docs/design.md")
	for _, dir := range packages(t) {
		room, name := filepath.Split(dir)
		if !strings.Contains(design, "`"+dir+"`") && !strings.Contains(design, "`"+dir+"/`") && !(room == "agent/" && strings.Contains(design, "`"+name+"`")) {
			t.Errorf("docs/design.md does not name %s", dir)
		}
	}
}

// packages are the folders of the program that hold Go files.
func packages(t *testing.T) (list []string) {
	t.Helper()
	for _, room := range []string{"agent", "proxy", "store"} {
		for _, pattern := range []string{room + "/*.go", room + "/*/*.go"} {
			files, err := filepath.Glob("../../" + pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if dir := strings.TrimPrefix(filepath.Dir(f), "../../"); !slices.Contains(list, dir) {
					list = append(list, dir)
				}
			}
		}
	}
	if len(list) < 20 {
		t.Fatal(list)
	}
	return list
}

// Where a doc.go lists the files of its package, it lists all.
func TestFileLists(t *testing.T) {
	lists := 0
	for _, dir := range packages(t) {
		text, err := os.ReadFile("../../" + dir + "/doc.go")
		if err != nil {
			continue // the package's comment is in another file
		}
		var listed []string
		for _, line := range regexp.MustCompile(`(?m)^//\t(\w+\.go.*)$`).FindAllStringSubmatch(string(text), -1) {
			listed = append(listed, regexp.MustCompile(`\w+\.go`).FindAllString(line[1], -1)...)
		}
		if listed == nil {
			continue
		}
		lists++
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		for _, f := range files {
			if name := filepath.Base(f); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
				there = append(there, name)
				if !slices.Contains(listed, name) {
					t.Errorf("%s/doc.go does not list %s", dir, name)
				}
			}
		}
		for _, name := range listed {
			if !slices.Contains(there, name) {
				t.Errorf("%s/doc.go lists %s, which is not there", dir, name)
			}
		}
	}
	if lists < 3 {
		t.Errorf("%d packages have a list", lists)
	}
}
