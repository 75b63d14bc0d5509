package install

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A run that is cut off, as by the power, leaves files beside those that it was to replace. The next run takes them away, whether it has
// something to replace or not, and so does the uninstaller.
func TestCutOffRun(t *testing.T) {
	for _, test := range []struct {
		name  string
		where string   // in which call of sync it ends
		left  []string // some of it
	}{
		{"before files move", "1", []string{"/usr/local/bin/sluice.sluice-new", config + ".sluice-new", unit + ".sluice-new"}},
		{"after files moved", "2", []string{"/usr/local/bin/sluice.sluice-old", config + ".sluice-old", unit + ".sluice-old"}},
	} {
		for _, next := range []string{"upgrade", "the earlier version again", "uninstall"} {
			t.Run(test.name+"/"+next, func(t *testing.T) {
				m, r := newMachine(t), newRelease(t)
				r.put("", arch(), program("v1"))
				m.mustInstall(r, "--v=1")
				before := m.trace()
				m.write(unit, m.read(unit)+"# earlier\n", 0o644) // the next run has nothing to replace here
				r.put("", arch(), program("v2"))
				m.fake("sync", `echo >>`+fakes+`/syncs; [ "$(wc -l <`+fakes+`/syncs)" != `+test.where+` ] || kill -9 $PPID`)
				if _, code := m.install(r, "--v=2"); code == 0 {
					t.Fatal("the run was not cut off")
				}
				for _, file := range test.left {
					if !m.exists(file) {
						t.Errorf("the run left no %s: this tests nothing", file)
					}
				}
				m.fake("sync", "")
				switch next {
				case "the earlier version again":
					r.put("", arch(), program("v1"))
					fallthrough
				case "upgrade":
					m.mustInstall(r, "--v=2")
					same(t, "files", before, m.trace())
				}
				m.uninstall("/usr/local/bin")
			})
		}
	}
}

// What an earlier installer left where the program was before INSTALL_SLUICE_BIN_DIR changed goes, and comes back if the new version does
// not start. A program of others stays.
func TestProgramLeftBehind(t *testing.T) {
	for _, test := range []struct {
		name   string
		dir    string
		script string
		goes   bool
	}{
		{"in the default directory", "/usr/local/bin", "#!/bin/sh\n# Takes sluice away\n{\nBIN_DIR=/usr/local/bin\nrm\n}\n", true},
		{"in the other default directory", "/opt/bin", "#!/bin/sh\n# Takes sluice away\n{\nBIN_DIR=/opt/bin\nrm\n}\n", true},
		{"one without an uninstaller", "/usr/local/bin", "", false},
		{"one with an uninstaller of others", "/opt/bin", "#!/bin/sh\nBIN_DIR=/usr/bin\n", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			program1, script := test.dir+"/sluice", test.dir+"/sluice-uninstall.sh"
			r.put("", arch(), program("v1"))
			m.env = []string{"INSTALL_SLUICE_BIN_DIR=/opt/sluice"}
			m.mustInstall(r)
			clean := m.trace()
			m.write(program1, program("v0"), 0o755)
			if test.script != "" {
				m.write(script, test.script, 0o755)
			}
			before := m.trace()
			m.env = nil

			r.put("", arch(), broken("v2"))
			if out, code := m.install(r); code != 1 || !strings.Contains(out, "back in place") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			same(t, "files after a start that failed", before, m.trace())

			r.put("", arch(), program("v3"))
			m.mustInstall(r)
			same(t, "program", program("v3"), m.read("/opt/sluice/sluice"))
			if !test.goes {
				same(t, "files", before, m.trace())
				return
			}
			same(t, "files", clean, slices.DeleteFunc(m.trace(), func(line string) bool { return strings.HasSuffix(line, " "+test.dir) }))
			if err := os.RemoveAll(m.outside("/opt/bin")); err != nil {
				t.Fatal(err)
			}
			m.uninstall("/opt/sluice")
		})
	}
}
