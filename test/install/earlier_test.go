package install

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	unit    = "/etc/systemd/system/sluice.service"
	usrUnit = "/usr/lib/systemd/system/sluice.service"
)

// uninstall takes sluice away. Nothing of it must be left but directories that it was told of.
func (m *machine) uninstall(binDir string) {
	m.t.Helper()
	if out, code := m.run("", append(slices.Clone(m.shell), binDir+"/sluice-uninstall.sh")...); code != 0 {
		m.t.Errorf("uninstall: exit code %d\n%s", code, out)
	}
	left := slices.DeleteFunc(m.trace(), func(line string) bool { return strings.HasSuffix(line, " /opt/sluice") })
	if len(left) > 0 {
		m.t.Errorf("left by uninstall:\n%s", strings.Join(left, "\n"))
	}
}

// Directories and options that are not given again stay.
func TestDirectoriesStay(t *testing.T) {
	for _, shell := range [][]string{{"/bin/sh"}, {"/bin/bash", "--posix"}, {"/bin/busybox", "ash"}} {
		m, r := newMachine(t), newRelease(t)
		m.shell = shell
		r.put("", arch(), program("v1"))
		m.env = []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system", "INSTALL_SLUICE_BIN_DIR=/opt/sluice"}
		m.mustInstall(r, "--config", "/etc/a.yaml", "--v=4")
		before := m.trace()
		m.env = nil
		r.put("", arch(), program("v2"))
		m.mustInstall(r)
		same(t, "files", before, m.trace())
		same(t, "program", program("v2"), m.read("/opt/sluice/sluice"))
		if text := m.read(usrUnit); !strings.Contains(text, "\nExecStart=/opt/sluice/sluice agent --config /etc/a.yaml\n") {
			t.Errorf("%v: unit:\n%s", shell, text)
		}
		if text := m.read("/etc/a.yaml.d/90-install.yaml"); !strings.HasSuffix(text, "\ngiven: --v=4\n") {
			t.Errorf("%v: options:\n%s", shell, text)
		}
		m.uninstall("/opt/sluice")
	}
}

// What moves leaves nothing behind, keeps its options, and comes back if it does not start.
func TestMove(t *testing.T) {
	for _, test := range []struct {
		name   string
		env    []string
		args   []string
		binDir string
		unit   string
		start  string
		config string
	}{
		{"program", []string{"INSTALL_SLUICE_BIN_DIR=/opt/sluice"}, nil, "/opt/sluice", unit, "/opt/sluice/sluice agent", config},
		{"unit", []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system"}, nil, "/usr/local/bin", usrUnit, "/usr/local/bin/sluice agent", config},
		{"configuration", nil, []string{"--config", "/etc/b.yaml"}, "/usr/local/bin", unit, "/usr/local/bin/sluice agent --config /etc/b.yaml", "/etc/b.yaml.d/90-install.yaml"},
		{"all", []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system", "INSTALL_SLUICE_BIN_DIR=/opt/sluice", "SLUICE_CONFIG=/etc/b.yaml"}, nil,
			"/opt/sluice", usrUnit, "/opt/sluice/sluice agent --config /etc/b.yaml", "/etc/b.yaml.d/90-install.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			r.put("", arch(), program("v1"))
			m.mustInstall(r, "--v=4")
			before := m.files()
			m.asked()

			m.env = test.env
			r.put("", arch(), broken("v2"))
			if out, code := m.install(r, test.args...); code != 1 || !strings.Contains(out, "back in place") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			same(t, "files after a start that failed", before, m.files())
			enabled := slices.DeleteFunc(m.asked(), func(line string) bool { return !strings.Contains(line, "enable sluice") })
			if len(enabled) != 2 {
				t.Errorf("links to the unit were made %q: want it for the new one, and for the one that is back", enabled)
			}
			if m.agent() == "" {
				t.Error("the earlier agent does not run")
			}

			r.put("", arch(), program("v3"))
			m.asked()
			m.mustInstall(r, test.args...)
			if moved := slices.Contains(m.asked(), "systemctl reenable sluice"); moved != (test.unit == usrUnit) {
				t.Errorf("links to the unit were made anew: %v", moved)
			}
			if text := m.read(test.unit); !strings.Contains(text, "\nExecStart="+test.start+"\n") {
				t.Errorf("unit:\n%s", text)
			}
			if text := m.read(test.config); !strings.Contains(text, "\ngiven: --v=4\n") {
				t.Errorf("options:\n%s", text)
			}
			m.env = nil
			m.write("/etc/systemd/system/sluice.service.d/override.conf", "[Service]\n", 0o644) // as systemctl edit makes it
			m.uninstall(test.binDir)
		})
	}
}

// A unit that systemd has from a directory of its own is the installed one.
func TestUnitElsewhere(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.env = []string{"INSTALL_SLUICE_SYSTEMD_DIR=/srv/units"}
	m.mustInstall(r)
	before := m.trace()
	m.env = nil
	m.mustInstall(r)
	same(t, "files", before, m.trace())
}

// What cannot be removed is named, and no reason to fail.
func TestReadOnlyLeft(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	m.freeze("/usr/local/bin")
	m.env = []string{"INSTALL_SLUICE_BIN_DIR=/opt/sluice"}
	out := m.mustInstall(r)
	for _, file := range []string{"sluice", "sluice-uninstall.sh"} {
		if !strings.Contains(out, "[WARN]  /usr/local/bin/"+file+" is of the earlier installation and cannot be removed") {
			t.Errorf("%s is not named:\n%s", file, out)
		}
	}
	same(t, "program", program("v1"), m.read("/opt/sluice/sluice"))
}

// A second unit that an installer left, and another's unit, which stays.
func TestTwoUnits(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.env = []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system", "INSTALL_SLUICE_BIN_DIR=/opt/sluice"}
	m.mustInstall(r)
	m.write(unit, strings.Replace(m.read(usrUnit), "/opt/sluice", "/usr/local/bin", 1), 0o644)
	m.env = nil
	m.mustInstall(r)
	m.uninstall("/usr/local/bin")

	m.write(usrUnit, "[Service]\nExecStart=/usr/bin/sluice agent\n", 0o644)
	m.settle()
	m.mustInstall(r)
	m.uninstall("/usr/local/bin")

	// Only the unit is replaced where that is asked for.
	m.write("/usr/bin/sluice", program("package"), 0o755)
	m.env = []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system", "INSTALL_SLUICE_BIN_DIR=/usr/local/bin"}
	m.mustInstall(r)
	same(t, "the program of a package", program("package"), m.read("/usr/bin/sluice"))
}

// Options that an earlier installer kept in the service's arguments and environment go into the configuration, where those
// that are given now win. What it did not write stays, with a warning if it wins over what is given.
func TestOlderLayout(t *testing.T) {
	const env = unit + ".env"
	for _, test := range []struct {
		name  string
		text  string
		env   []string
		args  []string
		left  string
		given string
		warns bool
	}{
		{"its own", "SLUICE_CLUSTER_CIDR='10.1.0.0/16'\n\nSLUICE_HOSTNAME_OVERRIDE='a \"b\\'\n", []string{"SLUICE_CLUSTER_CIDR=10.2.0.0/16"}, nil, "",
			"given: --v 3\nSLUICE_CLUSTER_CIDR=10.1.0.0/16\nSLUICE_HOSTNAME_OVERRIDE=a \"b\\\nSLUICE_CLUSTER_CIDR=10.2.0.0/16\n", false},
		{"only arguments", "", []string{"SLUICE_V=4"}, nil, "", "given: --v 3\nSLUICE_V=4\n", false},
		{"with the user's", "# mine\nGODEBUG=x=1\nSLUICE_V='1'\n", nil, []string{"--v=5"}, "# mine\nGODEBUG=x=1\n", "given: --v 3\nSLUICE_V=1\ngiven: --v=5\n", false},
		{"the user's wins", "SLUICE_PROXY_MODE=nftables\n", nil, []string{"--proxy-mode=iptables"}, "SLUICE_PROXY_MODE=nftables\n", "given: --v 3\ngiven: --proxy-mode=iptables\n", true},
		{"forgotten", "SLUICE_V='1'\n", []string{"INSTALL_SLUICE_EXEC="}, nil, "", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			r.put("", arch(), program("v1"))
			m.mustInstall(r)
			m.write(unit, strings.Replace(m.read(unit), "sluice agent\n", "sluice agent --v 3\n", 1), 0o644)
			m.makeOlder()
			if test.text != "" {
				m.write(env, test.text, 0o600)
			}
			m.env = test.env
			out := m.mustInstall(r, test.args...)
			m.environmentLeft(t, out, env, test.left, test.warns)
			if test.given != "" {
				same(t, "options", test.given, strings.SplitAfterN(m.read(config), "\n", 2)[1])
			} else if m.exists(config) {
				t.Errorf("options: %q", m.read(config))
			}
			m.env = nil
			pid := m.agent()
			m.mustInstall(r)
			if m.agent() != pid {
				t.Error("a second run changed something")
			}
			m.uninstall("/usr/local/bin")
		})
	}
}

// environmentLeft checks what an installation, of which out is the output, left of an environment file, and whether it warned of what wins.
func (m *machine) environmentLeft(t *testing.T, out, env, left string, wantWarning bool) {
	t.Helper()
	if warns := strings.Contains(out, "[WARN]  "+env+" sets SLUICE_PROXY_MODE, and wins"); warns != wantWarning {
		t.Errorf("a warning: %v, want %v:\n%s", warns, wantWarning, out)
	}
	if left == "" && m.exists(env) {
		t.Errorf("%s is left: %q", env, m.read(env))
	} else if left != "" {
		same(t, env, left, m.read(env))
	}
}

// The same with OpenRC, where lines of the environment are exports.
func TestOlderLayoutOpenRC(t *testing.T) {
	const service, env = "/etc/init.d/sluice", "/etc/conf.d/sluice"
	for _, test := range []struct {
		name, text  string
		args        []string
		left, given string
		warns       bool
	}{
		{"its own", "export SLUICE_CLUSTER_CIDR='10.1.0.0/16'\nexport SLUICE_HOSTNAME_OVERRIDE='a \"b\\'\n", nil, "",
			"given: --v 3\nSLUICE_CLUSTER_CIDR=10.1.0.0/16\nSLUICE_HOSTNAME_OVERRIDE=a \"b\\\n", false},
		{"with those of the user", "rc_need=net\nexport SLUICE_V='1'\nexport SLUICE_PROXY_MODE=nftables\nSLUICE_LOG_LEVEL='x'\n", []string{"--proxy-mode=iptables"},
			"rc_need=net\nexport SLUICE_PROXY_MODE=nftables\nSLUICE_LOG_LEVEL='x'\n", "given: --v 3\nSLUICE_V=1\ngiven: --proxy-mode=iptables\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			m.openRC()
			r.put("", arch(), program("v1"))
			m.mustInstall(r)
			m.write(service, strings.Replace(m.read(service), `"agent"`, `"agent --v 3"`, 1), 0o755)
			m.makeOlder()
			m.write(env, test.text, 0o600)
			out := m.mustInstall(r, test.args...)
			m.environmentLeft(t, out, env, test.left, test.warns)
			same(t, "options", test.given, strings.SplitAfterN(m.read(config), "\n", 2)[1])
			if text := m.read(service); !strings.Contains(text, "\ncommand_args=\"agent\"\n") {
				t.Errorf("the options stayed in the service:\n%s", text)
			}
			before := m.files()
			if out := m.mustInstall(r); !strings.Contains(out, "Nothing changed") {
				t.Errorf("a second run changed something:\n%s", out)
			}
			same(t, "files after a second run", before, m.files())
			m.uninstall("/usr/local/bin")
		})
	}
}

// A file that the user made stays, under an installer of today.
func TestOwnEnvironment(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	m.write(unit+".env", "SLUICE_V='1'\n", 0o640)
	m.env = []string{"SLUICE_LOG_LEVEL=debug"}
	if out := m.mustInstall(r); strings.Contains(out, "[WARN]") {
		t.Errorf("a warning for nothing:\n%s", out)
	}
	m.env = []string{"SLUICE_V=3"}
	if out := m.mustInstall(r); !strings.Contains(out, unit+".env sets SLUICE_V, and wins") {
		t.Errorf("no warning of the variable:\n%s", out)
	}
	m.env = nil
	if out := m.mustInstall(r, "--v", "2"); !strings.Contains(out, unit+".env sets SLUICE_V, and wins") {
		t.Errorf("no warning:\n%s", out)
	}
	same(t, "file", "SLUICE_V='1'\n", m.read(unit+".env"))

	// It goes with the unit.
	m.env = []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system"}
	m.mustInstall(r)
	same(t, "file beside the unit", "SLUICE_V='1'\n", m.read(usrUnit+".env"))
	m.env = nil
	m.uninstall("/usr/local/bin")
}

// Where the unit moves to there can be a file already: it stays, and so does the one beside the unit.
func TestEnvironmentAtTheNewPlace(t *testing.T) {
	const oldEnv, newEnv = unit + ".env", usrUnit + ".env"
	for _, test := range []struct {
		name       string
		old, there string
		older      bool   // the earlier installer is one that kept options in that file
		left       string // of the old file; "" if it goes
		warnings   []string
	}{
		{"two", "GODEBUG=x=1\n", "# mine\nSLUICE_V='2'\n", false, "GODEBUG=x=1\n", []string{
			newEnv + " was there before, and stays as it is. " + oldEnv + " stays, too, but is read no more",
			newEnv + " sets SLUICE_V, and wins"}},
		{"two and options", "GODEBUG=x=1\nSLUICE_LOG_LEVEL='debug'\n", "GODEBUG=x=2\n", true, "GODEBUG=x=1\n", []string{
			newEnv + " was there before"}},
		{"only options beside the unit", "SLUICE_LOG_LEVEL='debug'\n", "GODEBUG=x=2\n", true, "", nil},
		{"the same", "GODEBUG=x=1\n", "GODEBUG=x=1\n", false, "", nil},
		{"nothing beside the unit", "", "SLUICE_V='2'\n", false, "", []string{newEnv + " sets SLUICE_V, and wins"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			r.put("", arch(), program("v1"))
			m.mustInstall(r)
			if test.older {
				m.makeOlder()
			}
			if test.old != "" {
				m.write(oldEnv, test.old, 0o600)
			}
			m.write(newEnv, test.there, 0o640)
			m.env = []string{"INSTALL_SLUICE_SYSTEMD_DIR=/usr/lib/systemd/system"}
			out := m.mustInstall(r, "--v=4")
			for _, want := range test.warnings {
				if !strings.Contains(out, "[WARN]  "+want) {
					t.Errorf("no warning that %s:\n%s", want, out)
				}
			}
			if n := strings.Count(out, "[WARN]"); n != len(test.warnings) {
				t.Errorf("%d warnings, want %d:\n%s", n, len(test.warnings), out)
			}
			same(t, "the file beside the new unit", test.there, m.read(newEnv))
			if test.left == "" && m.exists(oldEnv) {
				t.Errorf("%s is left: %q", oldEnv, m.read(oldEnv))
			} else if test.left != "" {
				same(t, "the file beside the earlier unit", test.left, m.read(oldEnv))
			}
			if text := m.read(config); strings.Contains(text, "SLUICE_LOG_LEVEL=debug\n") != test.older {
				t.Errorf("options:\n%s", text)
			}

			m.env = nil
			pid := m.agent()
			if out := m.mustInstall(r); strings.Contains(out, "was there before") || m.agent() != pid {
				t.Errorf("a second run changed something, or tells it again:\n%s", out)
			}
			if err := os.RemoveAll(m.outside(oldEnv)); err != nil {
				t.Fatal(err)
			}
			m.uninstall("/usr/local/bin")
		})
	}
}

// makeOlder makes the installation one of an installer that knew no file for options.
func (m *machine) makeOlder() {
	m.t.Helper()
	const script = "/usr/local/bin/sluice-uninstall.sh"
	m.write(script, strings.Replace(m.read(script), "INSTALL_CONFIG=", "ANOTHER=", 1), 0o755)
}
