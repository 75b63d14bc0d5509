// Package docs tests that the documents say what the program does.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/agent/config"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The table of options is that of the program: names, order and defaults.
func TestOptions(t *testing.T) {
	type option struct{ Name, Alias, Default string }
	var want, got []option
	for _, o := range config.Options() {
		want = append(want, option{o.Name, o.Alias, o.Default})
	}
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)[^`]*`(?:, `--([a-z-]+)[^`]*`)? \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(strings.ReplaceAll(read(t, "docs/cli.md"), "| |", "|  |"), -1) {
		o := option{Name: m[1], Alias: m[2]}
		// A default in words is found out when the agent starts.
		if strings.HasPrefix(m[3], "`") {
			o.Default = strings.Trim(m[3], "`")
		}
		got = append(got, o)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/cli.md (-program +document):\n%s", diff)
	}
}

func TestCommands(t *testing.T) {
	var want, got []string
	for _, m := range regexp.MustCompile(`cmd\.([A-Z]\w*)\(\),`).FindAllStringSubmatch(read(t, "main.go"), -1) {
		want = append(want, strings.ToLower(m[1]))
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `sluice ([a-z]+)[^`]*` \\|").FindAllStringSubmatch(read(t, "docs/cli.md"), -1) {
		got = append(got, m[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/cli.md (-program +document):\n%s", diff)
	}
}

// All that install.sh can be told is in its own help and in the document, and all name one release page.
func TestInstaller(t *testing.T) {
	script, document := read(t, "install.sh"), read(t, "docs/install.md")
	_, rest, found := strings.Cut(script, "\nusage() {\n\tcat <<END\n")
	help, body, end := strings.Cut(rest, "\nEND\n")
	if !found || !end {
		t.Fatal("install.sh has no usage")
	}
	variable := regexp.MustCompile(`INSTALL_SLUICE_[A-Z_]+`)
	for _, v := range variable.FindAllString(body, -1) {
		if !strings.Contains(help, v+" ") || !strings.Contains(document, "`"+v+"`") {
			t.Errorf("%s is not explained in the help of install.sh and in docs/install.md", v)
		}
	}
	for _, v := range variable.FindAllString(help+document, -1) {
		if !strings.Contains(body, v) {
			t.Errorf("install.sh does not know %s", v)
		}
	}
	releases := regexp.MustCompile(`\nRELEASES=(\S+)\n`).FindStringSubmatch(script)
	if releases == nil {
		t.Fatal("install.sh has no RELEASES")
	}
	command := "curl -sSfL " + releases[1] + "/latest/download/install.sh | sh -"
	for file, text := range map[string]string{"install.sh": script, "docs/install.md": document, "README.md": read(t, "README.md")} {
		if !strings.Contains(text, command) {
			t.Errorf("%s lacks %q", file, command)
		}
	}
}

// Who reads the README finds all documents.
func TestReadOn(t *testing.T) {
	readme := read(t, "README.md")
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	for _, d := range documents {
		name := "docs/" + filepath.Base(d)
		if !strings.Contains(readme, "- ["+name+"]("+name+"): ") {
			t.Errorf("README.md does not list %s", name)
		}
	}
}

// The number of modules that is written down is that of the program.
func TestModules(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", "../..", "-tags", "urfave_cli_no_docs", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]bool{}
	for _, name := range strings.Fields(string(out)) {
		modules[name] = true
	}
	if want := fmt.Sprintf("code of %d other modules", len(modules)); !strings.Contains(read(t, "docs/security.md"), want) {
		t.Errorf("docs/security.md does not say %q", want)
	}
}
