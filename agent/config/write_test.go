package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is written is read again as what was given, and what the file had stays unless it is given anew.
func TestWriteFile(t *testing.T) {
	given := world{
		flags: map[string][]string{"cluster-cidr": {"10.42.0.0/16", "fd42::/56"}, "v": {"4"}, "masquerade-all": {"true"},
			"hostname-override": {"007"}, "metrics-bind-address": {""}, "config": {"/nowhere"}},
		env: map[string]string{"SLUICE_SYNC_PERIOD": "7s", "SLUICE_V": "1", "SLUICE_PROFILING": ""},
	}
	src := Sources{Flags: given.flags, LookupEnv: func(name string) (string, bool) { v, ok := given.env[name]; return v, ok }}
	path := filepath.Join(t.TempDir(), "c.yaml")
	before := "# a comment\nlog-level: debug\nsync-period: 1s\ncluster-cidr+: 10.1.0.0/16\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, src); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	delete(given.flags, "config")
	given.env["SLUICE_LOG_LEVEL"] = "debug"
	want, _, err := given.load(t)
	if err != nil {
		t.Fatal(err)
	}
	got, warnings, err := world{files: map[string]string{"config.yaml": string(written)}}.load(t)
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" || err != nil || warnings != nil {
		t.Errorf("%v, %v (-want +got):\n%s\nfrom\n%s", err, warnings, diff, written)
	}
}

func TestWriteFileOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	none := Sources{LookupEnv: func(string) (string, bool) { return "", false }}
	if err := WriteFile(path, none); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file was made (%v)", err)
	}
	if err := os.WriteFile(path, []byte("- a list\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, none); err == nil {
		t.Error("a file that is no mapping is taken")
	}
}
