package rig

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/test/lab"
	"sluice/test/tempdir"
)

// Binary is the program under test; Main builds it where no flag names one.
var Binary string

func init() {
	flag.StringVar(&Binary, "binary", "", "the program under test; empty: build it")
}

// Main is the TestMain of packages that use a Rig or a Process.
func Main(m *testing.M) {
	flag.Parse()
	code, entered, err := lab.Enter()
	if err == nil && !entered {
		code, err = buildAndRun(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests of the agent cannot run here:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	// The tests wait more than they work.
	if err := flag.Set("test.parallel", "4"); err != nil {
		return 0, err
	}
	if Binary != "" {
		return m.Run(), nil
	}
	dir, err := tempdir.New("sluice-test-")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	Binary = filepath.Join(dir.Path, "sluice")
	if out, err := exec.Command("go", "build", "-o", Binary, "sluice").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return m.Run(), nil
}
