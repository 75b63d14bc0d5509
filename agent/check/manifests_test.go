package check

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/agent/config"
)

const goodManifest = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: v1
kind: Node
metadata: {name: pi}
spec: {podCIDR: 10.42.1.0/24}
`

// What the agent would refuse is said, with file, line and field, and so is a Node that is not there.
func TestManifests(t *testing.T) {
	const bad = `# a comment
---
apiVersion: v1
kind: Service
metadata: {name: bad}
spec: {clusterIP: 10.96.0.11, ports: [{port: 70000}]}
`
	for _, test := range []struct {
		name  string
		node  string
		files map[string]string
		items []want // the first of each name
	}{
		{"good", "pi", map[string]string{"a.yaml": goodManifest}, []want{{OK, ", 1 Service", ""}, {OK, "pi", ""}}},
		{"bad", "pi", map[string]string{"a.yaml": goodManifest, "b.yaml": bad}, []want{{Fail, "b.yaml, document 1 (line 3): Service default/bad: spec.ports[0].port", "correct it"}, {OK, "pi", ""}}},
		{"broken", "pi", map[string]string{"a.yaml": goodManifest, "b.yaml": "a: [\n"}, []want{{Fail, "b.yaml, document 1 (line 1): ", "correct it"}, {OK, "pi", ""}}},
		{"another Node", "zero", map[string]string{"a.yaml": goodManifest}, []want{{OK, ", 1 Service", ""}, {Warn, "no Node zero, only pi", "--hostname-override"}}},
		{"empty", "pi", nil, []want{{OK, ", 0 Services", ""}, {Warn, "no Node pi:", "write one"}}},
	} {
		dir := t.TempDir()
		for name, text := range test.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l := looker{Options: Options{Config: config.Config{Manifests: dir, NodeName: test.node}}, ctx: t.Context()}
		begun := time.Now()
		items := judgeManifests(l.readManifests())
		if took := time.Since(begun); took > apiTime/2 {
			t.Errorf("%s: it took %v", test.name, took)
		}
		if len(items) != len(test.items) {
			t.Errorf("%s: %+v", test.name, items)
			continue
		}
		for i, item := range items {
			compare(t, test.name, item, test.items[i])
		}
	}
	l := looker{Options: Options{Config: config.Config{Manifests: filepath.Join(t.TempDir(), "none")}}, ctx: t.Context()}
	compare(t, "no directory", judgeManifests(l.readManifests())[0], want{Fail, "no such", "--manifests"})
}
