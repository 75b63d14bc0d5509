package install

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// config is where the options of an installation go.
const config = "/etc/rancher/sluice/config.yaml.d/90-install.yaml"

// installed is what there is after an installation without options.
var installed = []string{
	"-rw-r--r-- /etc/modules-load.d/sluice.conf",
	"-rw-r--r-- /etc/sysctl.d/90-sluice.conf",
	"-rw-r--r-- /etc/systemd/system/sluice.service",
	"-rwxr-xr-x /usr/local/bin/sluice",
	"-rwxr-xr-x /usr/local/bin/sluice-uninstall.sh",
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A life: installed, installed again, upgraded, downgraded, taken away.
func TestLife(t *testing.T) {
	for _, kind := range []struct {
		name    string
		prepare func(*machine)
	}{
		{"sh and curl", func(*machine) {}},
		{"bash and wget", func(m *machine) { m.shell = []string{"/bin/bash", "--posix"}; m.without("curl") }},
		{"busybox", (*machine).onlyBusybox},
	} {
		t.Run(kind.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			kind.prepare(m)
			m.settle()
			r.put("", arch(), program("v1"))
			r.put("v0", arch(), program("v0"))

			m.mustInstall(r, "--cluster-cidr", "10.42.0.0/16,fd42::/56")
			files := slices.DeleteFunc(m.trace(), func(line string) bool { return strings.HasPrefix(line, "d") })
			same(t, "files", slices.Sorted(slices.Values(append(installed[:len(installed):len(installed)], "-rw-r--r-- "+config))), files)
			same(t, "asked of systemd", []string{"systemctl daemon-reload", "systemctl enable sluice",
				"systemctl reset-failed sluice", "systemctl restart --no-block sluice"}, m.asked())
			same(t, "downloads", []string{"/sha256sum-" + arch() + ".txt", "/sluice-" + arch()}, r.downloads())
			first := m.agent()
			if first == "" {
				t.Fatal("no agent runs")
			}
			const start, given = "\nExecStart=/usr/local/bin/sluice agent\n", "given: --cluster-cidr 10.42.0.0/16,fd42::/56\n"
			if unit := m.read("/etc/systemd/system/sluice.service"); !strings.Contains(unit, start) {
				t.Errorf("the unit lacks %q:\n%s", start, unit)
			}
			if modules := m.read("/etc/modules-load.d/sluice.conf"); !strings.Contains(modules, "\nnf_tables\n") || strings.Contains(modules, "\nip_tables\n") {
				t.Errorf("modules are not those that the kernel has:\n%s", modules)
			}
			m.write("/var/lib/sluice/objects.db", "the cache", 0o600)
			m.write("/etc/rancher/sluice/config.yaml", "log-level: debug\n", 0o644)

			out := m.mustInstall(r)
			if !strings.Contains(out, "Nothing changed") || m.agent() != first {
				t.Errorf("the same again: the agent is %s, it was %s\n%s", m.agent(), first, out)
			}
			same(t, "downloads of the same again", []string{"/sha256sum-" + arch() + ".txt"}, r.downloads())
			m.write("/usr/local/bin/sluice-uninstall.sh", m.read("/usr/local/bin/sluice-uninstall.sh")+"# earlier\n", 0o755)
			if out := m.mustInstall(r); !strings.Contains(out, "Nothing changed") || m.agent() != first {
				t.Errorf("a file that the agent does not use: the agent is %s, it was %s\n%s", m.agent(), first, out)
			}
			m.asked()

			for _, version := range []string{"v2", "v0"} {
				before := m.agent()
				if version == "v0" {
					m.env = append(m.env, "INSTALL_SLUICE_VERSION=v0")
				} else {
					r.put("", arch(), program(version))
				}
				if out := m.mustInstall(r); !strings.Contains(out, "Installed: sluice "+version) {
					t.Errorf("%s is not named:\n%s", version, out)
				}
				same(t, version, program(version), m.read("/usr/local/bin/sluice"))
				if after := m.agent(); after == "" || after == before {
					t.Errorf("%s was not started: the agent is %q, it was %q", version, after, before)
				}
				if text := m.read(config); !strings.HasSuffix(text, "\n"+given) {
					t.Errorf("%s: the options are lost:\n%s", version, text)
				}
				same(t, "cache", "the cache", m.read("/var/lib/sluice/objects.db"))
			}
			m.asked()

			if out, code := m.run("", append(m.shell, "/usr/local/bin/sluice-uninstall.sh")...); code != 0 {
				t.Errorf("uninstall: exit code %d\n%s", code, out)
			}
			same(t, "what is left", []string(nil), m.trace())
			same(t, "asked by uninstall", []string{"systemctl disable --now sluice", "systemctl reset-failed sluice",
				"cleanup by v0", "systemctl daemon-reload"}, m.asked())
			if m.agent() != "" {
				t.Error("the agent runs on")
			}
		})
	}
}

func TestArchitectures(t *testing.T) {
	for _, test := range []struct{ machine, bits, want string }{
		{"x86_64", "64", "amd64"}, {"aarch64", "64", "arm64"}, {"aarch64", "32", "armv7"}, {"armv8l", "32", "armv7"},
		{"armv7l", "32", "armv7"}, {"armv6l", "32", "armv6"}, {"riscv64", "64", "riscv64"},
	} {
		t.Run(test.machine+"-"+test.bits, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			m.fake("uname", `case $1 in -m) echo `+test.machine+`;; *) echo Linux;; esac`)
			m.fake("getconf", "echo "+test.bits)
			r.put("", test.want, program("v1"))
			m.mustInstall(r)
			same(t, "downloads", []string{"/sha256sum-" + test.want + ".txt", "/sluice-" + test.want}, r.downloads())
		})
	}
	t.Run("without getconf", func(t *testing.T) {
		m, r := newMachine(t), newRelease(t)
		m.without("getconf")
		r.put("", arch(), program("v1"))
		m.mustInstall(r)
	})
}

func TestSettings(t *testing.T) {
	const unit, binary = "/etc/systemd/system/sluice.service", "/usr/local/bin/sluice"
	const restart = "systemctl restart --no-block sluice"
	for _, test := range []struct {
		name  string
		env   []string
		args  []string
		file  string // has
		text  string
		asked string // the last that systemd was asked
		says  string
	}{
		{"arguments in a variable", []string{"INSTALL_SLUICE_EXEC=agent --v 4 --healthz-bind-address=[::]:10256"}, nil,
			config, "\ngiven: --v 4 --healthz-bind-address=[::]:10256\n", restart, "sluice status"},
		{"the command's name in front", nil, []string{"agent", "--v", "4"}, config, "\ngiven: --v 4\n", restart, ""},
		{"a blank and quotes", nil, []string{"--hostname-override=a \"'b"}, config, "\ngiven: --hostname-override=a \"'b\n", restart, ""},
		{"options in the environment", []string{"SLUICE_CLUSTER_CIDR=10.42.0.0/16", "SLUICE_HOSTNAME_OVERRIDE=a 'b"}, nil,
			config, "\nSLUICE_CLUSTER_CIDR=10.42.0.0/16\nSLUICE_HOSTNAME_OVERRIDE=a 'b\n", restart, ""},
		{"a line that looks like a variable", []string{"A=x\nSLUICE_CLUSTER_CIDR=\nINSTALL_SLUICE_X=y", "SLUICE_V=4"}, nil, config, "again.\nSLUICE_V=4\n", restart, ""},
		{"an option without effect", nil, []string{"--idle"}, config, "\ngiven: --idle\n", restart, "[WARN]  --idle has no effect"},
		{"not started", []string{"INSTALL_SLUICE_SKIP_START=true"}, nil, binary, "sluice v1", "systemctl enable sluice", `"sudo systemctl start sluice" starts it`},
		{"not started in another word", []string{"INSTALL_SLUICE_SKIP_START=1"}, nil, binary, "sluice v1", "systemctl enable sluice", `"sudo systemctl start sluice" starts it`},
		{"started", []string{"INSTALL_SLUICE_SKIP_START=false"}, nil, binary, "sluice v1", restart, ""},
		{"an unknown variable", []string{"INSTALL_SLUICE_SKIP_STRAT=true"}, nil, binary, "sluice v1", restart, "[WARN]  INSTALL_SLUICE_SKIP_STRAT is unknown"},
		{"not enabled", []string{"INSTALL_SLUICE_SKIP_ENABLE=true"}, nil, binary, "sluice v1", "systemctl daemon-reload", `"sudo systemctl enable --now sluice" starts it`},
		{"another directory", []string{"INSTALL_SLUICE_BIN_DIR=/opt/sluice"}, nil, unit, "ExecStart=/opt/sluice/sluice agent\n", restart, "/opt/sluice/sluice-uninstall.sh"},
		{"another configuration", nil, []string{"--v=4", "--config", "/etc/a.yaml"}, unit, "ExecStart=" + binary + " agent --config /etc/a.yaml\n", restart, ""},
		{"options there", []string{"SLUICE_CONFIG=/etc/a.yaml"}, []string{"--v=4"}, "/etc/a.yaml.d/90-install.yaml", "given: --v=4\n", restart, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			r.put("", arch(), program("v1"))
			m.env = test.env
			out := m.mustInstall(r, test.args...)
			if !strings.Contains(out, test.says) || strings.Contains(out, "was not started") == strings.Contains(test.asked, "restart") {
				t.Errorf("it does not say %q, or says of a start what is wrong:\n%s", test.says, out)
			}
			if warns := strings.Contains(out, "[WARN]"); warns != strings.HasPrefix(test.says, "[WARN]") {
				t.Errorf("a warning: %v\n%s", warns, out)
			}
			if text := m.read(test.file); !strings.Contains(text, test.text) {
				t.Errorf("%s lacks %q:\n%s", test.file, test.text, text)
			}
			if asked := m.asked(); asked[len(asked)-1] != test.asked {
				t.Errorf("systemd was asked %q, want %q last", asked, test.asked)
			}
			pid := m.agent()
			m.env = nil
			m.mustInstall(r)
			if started := strings.Contains(test.asked, "restart"); started && m.agent() != pid {
				t.Error("a second run without the settings changed something")
			}
			uninstall := "/usr/local/bin/sluice-uninstall.sh"
			var clean []string
			if test.name == "another directory" {
				uninstall = "/opt/sluice/sluice-uninstall.sh"
				clean = []string{"drwxr-xr-x /opt/sluice"}
			}
			if out, code := m.run("", uninstall); code != 0 {
				t.Errorf("uninstall: exit code %d\n%s", code, out)
			}
			same(t, "what is left", clean, m.trace())
		})
	}
}

// Options that are given again change those alone; INSTALL_SLUICE_EXEC that is empty begins anew. What an
// earlier version had in the service's file goes into the configuration.
func TestOptionsAgain(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r, "--v", "1")
	m.mustInstall(r, "--v", "2")
	if text := m.read(config); !strings.HasSuffix(text, "\ngiven: --v 1\ngiven: --v 2\n") {
		t.Errorf("the program was not given the earlier options:\n%s", text)
	}
	m.env = []string{"INSTALL_SLUICE_EXEC="}
	m.mustInstall(r)
	if text := m.read(config); strings.Contains(text, "given:") {
		t.Errorf("options are left:\n%s", text)
	}
	m.env = nil
	const unit = "/etc/systemd/system/sluice.service"
	m.write(unit, strings.Replace(m.read(unit), "sluice agent\n", "sluice agent --v 3\n", 1), 0o644)
	m.mustInstall(r)
	if text := m.read(config); !strings.HasSuffix(text, "\ngiven: --v 3\n") || !strings.Contains(m.read(unit), "sluice agent\n") {
		t.Errorf("the options of the service's file are lost, or stayed there:\n%s", text)
	}
}

// Words that are no options install nothing.
func TestWords(t *testing.T) {
	for _, test := range []struct {
		args []string
		env  string
		code int
		want string
	}{
		{[]string{"--help"}, "", 0, "INSTALL_SLUICE_EXEC "},
		{[]string{"-h"}, "", 0, "INSTALL_SLUICE_EXEC "},
		{[]string{"help"}, "", 0, "INSTALL_SLUICE_EXEC "},
		{[]string{"--v", "4", "--help"}, "", 0, "INSTALL_SLUICE_EXEC "},
		{nil, "INSTALL_SLUICE_EXEC=agent --help", 0, "INSTALL_SLUICE_EXEC "},
		{[]string{"uninstall"}, "", 1, "sudo sluice-uninstall.sh"},
		{[]string{"server"}, "", 1, `"server" is nothing to install with`},
		{nil, "INSTALL_SLUICE_EXEC=server --v 4", 1, `"server" is nothing to install with`},
		{[]string{"--no-such-flag"}, "", 1, `The options cannot be used: unknown flag --no-such-flag. See "sluice agent --help". Nothing was changed.`},
		{nil, "INSTALL_SLUICE_SKIP_START=maybe", 1, `INSTALL_SLUICE_SKIP_START is "maybe", and must be true or false. Nothing was changed.`},
		{nil, "INSTALL_SLUICE_FORCE=TRUE", 1, `INSTALL_SLUICE_FORCE is "TRUE"`},
	} {
		for _, shell := range [][]string{{"/bin/dash"}, {"/bin/busybox", "ash"}} {
			m, r := newMachine(t), newRelease(t)
			r.put("", arch(), program("v1"))
			m.settle()
			m.shell = shell
			if test.env != "" {
				m.env = []string{test.env}
			}
			out, code := m.install(r, test.args...)
			if code != test.code || !strings.Contains(out, test.want) {
				t.Errorf("%v %q %q: exit code %d, want %d and %q:\n%s", shell, test.args, test.env, code, test.code, test.want, out)
			}
			same(t, "what was written", []string(nil), m.trace())
			same(t, "asked of systemd", []string(nil), m.asked())
		}
	}
}

// The uninstaller takes sluice away only if it is given nothing.
func TestUninstallerWords(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	before, agent := m.files(), m.agent()
	m.asked()
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "Usage: sluice-uninstall.sh"},
		{[]string{"--dry-run"}, 2, `"--dry-run" is unknown`},
		{[]string{"--dry-run", "-h"}, 0, "Usage: sluice-uninstall.sh"},
		{[]string{""}, 2, "Nothing was changed."},
	} {
		out, code := m.run("", append([]string{"/usr/local/bin/sluice-uninstall.sh"}, test.args...)...)
		if code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", test.args, code, test.code, test.want, out)
		}
	}
	same(t, "files", before, m.files())
	same(t, "asked of systemd", []string(nil), m.asked())
	if m.agent() != agent {
		t.Error("the agent is another, or none")
	}
}

// Where /usr is read-only, as on Flatcar, k3s takes /opt/bin.
func TestReadOnlyUsrLocal(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	m.readOnly("/usr/local/bin")
	m.mkdir(m.outside("/opt/bin"))
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	same(t, "program", program("v1"), m.read("/opt/bin/sluice"))
}

func TestAirGap(t *testing.T) {
	m := newMachine(t)
	m.without("curl", "wget")
	m.settle()
	m.write("/usr/local/bin/sluice", program("v1"), 0o755)
	m.env = []string{"INSTALL_SLUICE_SKIP_DOWNLOAD=true"}
	m.mustInstall(nil)
	same(t, "files", installed, m.trace())
	first := m.agent()
	m.mustInstall(nil)
	if m.agent() != first {
		t.Error("the same again started the agent anew")
	}
	m.env = append(m.env, "INSTALL_SLUICE_FORCE_RESTART=true") // what changed cannot be seen: the program is in place before
	m.mustInstall(nil)
	if m.agent() == first {
		t.Error("INSTALL_SLUICE_FORCE_RESTART did not start the agent anew")
	}
}

func TestSudo(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.fake("id", "echo 1000")
	m.fake("sudo", `[ "$1" = -- ] && shift; echo "$1" >>`+fakes+`/sudo; exec "$@"`)
	m.mustInstall(r)
	same(t, "files", installed, m.trace())
	if used := m.read(filepath.Join(fakes, "sudo")); !strings.Contains(used, "\nmv\n") || strings.Contains(used, "curl") {
		t.Errorf("sudo ran:\n%s", used)
	}
}

func TestOpenRC(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	m.openRC()
	r.put("", arch(), program("v1"))
	m.env = []string{"SLUICE_V=4"}
	m.mustInstall(r, "--cluster-cidr", "10.42.0.0/16")
	same(t, "asked of OpenRC", []string{"rc-update add sluice boot", "rc-service sluice restart", "rc-service --quiet sluice status"}, m.asked())
	same(t, "options", "given: --cluster-cidr 10.42.0.0/16\nSLUICE_V=4\n", strings.SplitAfterN(m.read(config), "\n", 2)[1])
	m.env = nil
	m.mustInstall(r)
	const start = "\ncommand=/usr/local/bin/sluice\ncommand_args=\"agent\"\n"
	if service := m.read("/etc/init.d/sluice"); !strings.Contains(service, start) {
		t.Errorf("the service lacks %q:\n%s", start, service)
	}
	m.asked()
	if out, code := m.run("", append(m.shell, "/usr/local/bin/sluice-uninstall.sh")...); code != 0 {
		t.Errorf("uninstall: exit code %d\n%s", code, out)
	}
	same(t, "what is left", []string(nil), m.trace())
	same(t, "asked by uninstall", []string{"rc-service sluice stop", "rc-update delete sluice boot", "cleanup by v1"}, m.asked())
}

func TestEmbeddedFiles(t *testing.T) {
	if out, err := exec.Command("../../.ci/embed", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
