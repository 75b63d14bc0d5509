package install

import (
	"os"
	"strings"
	"testing"
)

// The file that --config names is that of the installation until another is named, or options are forgotten. Then nothing of this
// installer is left beside it.
func TestConfigurationMoves(t *testing.T) {
	const inFile, inVariable, given = "--config", "SLUICE_CONFIG", "given: --v=4\n"
	for _, test := range []struct {
		name   string
		was    string // how /etc/a.yaml is named by the earlier installation
		env    []string
		args   []string
		start  string // the unit's arguments
		file   string // of the options
		text   string
		others bool // there is a file of others beside the options
	}{
		{"to another", inFile, nil, []string{"--config=/etc/b.yaml"}, " --config /etc/b.yaml", "/etc/b.yaml.d/90-install.yaml", given, false},
		{"to the default", inFile, []string{"SLUICE_CONFIG=/etc/rancher/sluice/config.yaml"}, nil, "", config, given, false},
		{"files of others stay", inFile, []string{"SLUICE_CONFIG=/etc/b.yaml"}, nil, " --config /etc/b.yaml", "/etc/b.yaml.d/90-install.yaml", given, true},
		{"an argument before a variable", inFile, []string{"SLUICE_CONFIG=/etc/c.yaml"}, []string{"-config", "/etc/b.yaml"},
			" --config /etc/b.yaml", "/etc/b.yaml.d/90-install.yaml", given, false},
		{"forgotten", inFile, []string{"INSTALL_SLUICE_EXEC="}, nil, "", config, "", false},
		{"from a variable", inVariable, nil, []string{"--config=/etc/b.yaml"}, " --config /etc/b.yaml", "/etc/b.yaml.d/90-install.yaml", "SLUICE_V=1\n", false},
		{"from a variable to the default", inVariable, nil, []string{"--config", "/etc/rancher/sluice/config.yaml"}, "", config, "SLUICE_V=1\n", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			r.put("", arch(), program("v1"))
			if test.was == inFile {
				m.mustInstall(r, "--config", "/etc/a.yaml", "--v=4")
			} else {
				m.mustInstall(r)
				m.makeOlder()
				m.write(unit+".env", "SLUICE_CONFIG='/etc/a.yaml'\nSLUICE_V='1'\n", 0o600)
			}
			m.write("/etc/a.yaml", "conflict\n", 0o644) // the reason to leave it
			if test.others {
				m.write("/etc/a.yaml.d/10-mine.yaml", "v: 1\n", 0o644)
			}
			m.env = test.env
			m.mustInstall(r, test.args...)
			if text := m.read(unit); !strings.Contains(text, "sluice agent"+test.start+"\n") {
				t.Errorf("unit:\n%s", text)
			}
			if test.text != "" {
				same(t, "options", test.text, strings.SplitAfterN(m.read(test.file), "\n", 2)[1])
			} else if m.exists(test.file) {
				t.Errorf("options: %q", m.read(test.file))
			}
			if m.exists("/etc/a.yaml.d/90-install.yaml") || m.exists("/etc/a.yaml.d") != test.others {
				t.Error("/etc/a.yaml.d is left, or gone")
			}
			same(t, "the file itself", "conflict\n", m.read("/etc/a.yaml"))
			m.env = nil
			for _, file := range []string{"/etc/a.yaml", "/etc/a.yaml.d"} {
				if err := os.RemoveAll(m.outside(file)); err != nil {
					t.Fatal(err)
				}
			}
			m.uninstall("/usr/local/bin")
		})
	}
}

// An older layout that named it by a variable has it in the unit afterwards.
func TestConfigurationOfTheOlderLayout(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	m.makeOlder()
	m.write(unit+".env", "SLUICE_CONFIG='/etc/a.yaml'\nSLUICE_V='1'\n", 0o600)
	m.mustInstall(r)
	if text := m.read(unit); !strings.Contains(text, "sluice agent --config /etc/a.yaml\n") {
		t.Errorf("unit:\n%s", text)
	}
	same(t, "options", "SLUICE_V=1\n", strings.SplitAfterN(m.read("/etc/a.yaml.d/90-install.yaml"), "\n", 2)[1])
}

// Options are checked together with the file that an earlier installation named, whether they are given now or come from an older layout.
func TestOptionsAreCheckedWithTheConfiguration(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r, "--config", "/etc/a.yaml")
	m.write("/etc/a.yaml", "conflict\n", 0o644)
	before := m.files()
	if out, code := m.install(r, "--v", "4"); code != 1 || !strings.Contains(out, "The options cannot be used: /etc/a.yaml has what") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	same(t, "files", before, m.files())

	m.write(unit, strings.Replace(m.read(unit), "sluice agent ", "sluice agent --v 3 ", 1), 0o644)
	before = m.files()
	if out, code := m.install(r); code != 1 || strings.Count(out, "[ERROR]") != 1 || !strings.Contains(out, "INSTALL_SLUICE_EXEC forgets if it is set but empty, cannot be used: /etc/a.yaml has what") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	same(t, "files", before, m.files())
}

// Options that are forgotten have no effect any more: the service restarts although only its environment changed.
func TestForgottenOptionsRestart(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	m.makeOlder()
	m.write(unit+".env", "SLUICE_V='1'\n", 0o600)
	pid := m.agent()
	m.env = []string{"INSTALL_SLUICE_EXEC="}
	m.mustInstall(r)
	if m.exists(unit+".env") || m.agent() == pid {
		t.Error("the options are left, or still in effect")
	}
}
