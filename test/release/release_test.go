// Package release tests what `make release` makes.
package release

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/agent/config"
)

// run runs a command of the repository that is in dir.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	for _, v := range os.Environ() { // not what the make that runs the tests was told
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "VERSION=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.Output()
	if err != nil {
		var stderr []byte
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = exit.Stderr
		}
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr)
	}
	return string(out)
}

// Two builds of one commit in different directories have the same bytes. The program needs nothing
// else, and the licences of all that is in it go with it.
func TestReproducible(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("this is no clone of the repository: there is no commit to build")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const name = "dist/sluice-armv6"
	var builds [2][]byte
	var clone string
	for i, dir := range []string{"one", "another/and-deeper"} {
		clone = filepath.Join(t.TempDir(), dir)
		run(t, ".", "git", "clone", "--quiet", repository, clone)
		run(t, clone, "make", name)
		if builds[i], err = os.ReadFile(filepath.Join(clone, name)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(builds[0], builds[1]) {
		t.Errorf("%s has %d bytes in one directory and %d, or others, in another", name, len(builds[0]), len(builds[1]))
	}

	program, err := elf.NewFile(bytes.NewReader(builds[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static")
		}
	}
	version := strings.TrimSpace(run(t, clone, "git", "describe", "--tags", "--always", "--abbrev=12"))
	if !bytes.Contains(builds[0], []byte(version)) {
		t.Errorf("the program does not have its version %s", version)
	}

	info, err := buildinfo.Read(bytes.NewReader(builds[0]))
	if err != nil {
		t.Fatal(err)
	}
	licences := run(t, clone, ".ci/licences")
	if len(info.Deps) < 10 {
		t.Errorf("the program names only %d modules", len(info.Deps))
	}
	for _, module := range info.Deps {
		if !strings.Contains(licences, "\n==== "+module.Path+" "+module.Version+": ") {
			t.Errorf("the licence of %s %s is missing", module.Path, module.Version)
		}
	}
}

// The man page has every command and every option.
func TestManual(t *testing.T) {
	run(t, "../..", "make", "build")
	page := run(t, "../..", ".ci/man", "bin/sluice")
	for _, o := range config.Options() {
		if option := strings.ReplaceAll("--"+o.Name, "-", `\-`); !strings.Contains(page, option) {
			t.Errorf("the option %s is missing", o.Name)
		}
	}
	for _, command := range []string{"agent", "status", "get", "explain", "diff", "top", "check", "cleanup", "version", "completion"} {
		if !strings.Contains(page, ".SH \"SLUICE "+strings.ToUpper(command)+"\"\n") {
			t.Errorf("the command %s is missing", command)
		}
	}
	if strings.Contains(page, "\n.nf\n.fi\n") {
		t.Error("a help text is empty")
	}
}
