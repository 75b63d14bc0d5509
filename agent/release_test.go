package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/test/procfs"
)

// TestReleaseProgram holds that the program runs on after its pages were given back, and that there is something to win.
func TestReleaseProgram(t *testing.T) {
	before, err := procfs.Memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	after, err := procfs.Memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after["RssFile"] > before["RssFile"]*3/4 {
		t.Errorf("pages of files: %d bytes before, %d after", before["RssFile"], after["RssFile"])
	}
}

func TestIsFixed(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]bool{"exe": true, "pie": false} {
		program := filepath.Join(dir, mode)
		if out, err := exec.Command("go", "build", "-buildmode="+mode, "-o", program, source).CombinedOutput(); err != nil {
			t.Fatalf("build: %v: %s", err, out)
		}
		if got, err := isFixed(program); got != want || err != nil {
			t.Errorf("%s: %v, error %v, want %v", mode, got, err, want)
		}
	}
}
