package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Main is the TestMain of packages whose tests make namespaces.
func Main(m *testing.M) {
	code, entered, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests cannot run here:", err)
		code = 1
	} else if !entered {
		code = m.Run()
	}
	os.Exit(code)
}

// NewTestNamespace makes a namespace that lives as long as a test. Its loopback interface
// is up; the lines are what more IP is to do.
func NewTestNamespace(t testing.TB, lines ...string) *Namespace {
	t.Helper()
	n, err := NewNamespace("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.IP(t.Context(), "link set lo up\n"+strings.Join(lines, "\n")); err != nil {
		t.Fatal(err)
	}
	return n
}

// Must runs a command that must succeed, and returns what it printed on its standard output.
func (n *Namespace) Must(t testing.TB, command string, args ...string) string {
	t.Helper()
	out, err := n.Run(t.Context(), "", command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
