package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzFile: whatever a configuration file holds, it is taken or refused with an error that names the file.
func FuzzFile(f *testing.F) {
	f.Add([]byte("cluster-cidr: [10.42.0.0/16, \"fd42::/56\"]\nnodeport-addresses+: primary\nv: 4\nmasquerade-all: true\nsync-period: 30s\n"))
	f.Add([]byte("healthz-bind-address: 0.0.0.0:10256\nmetrics-services: -1\ndetect-local-mode: BridgeInterface\n"))
	f.Add([]byte("? [a]\n: {b: !!float .nan}\n"))
	f.Add([]byte("&a [*a]"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := Load(Sources{Flags: map[string][]string{"config": {file}}, LookupEnv: func(string) (string, bool) { return "", false }})
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		_ = cfg.Validate()
		_ = cfg.WithoutEffect()
	})
}
