package install

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// installed is what there is after an installation.
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
			same(t, "files", installed, m.trace())
			same(t, "asked of systemd", []string{"systemctl daemon-reload", "systemctl enable sluice", "systemctl daemon-reload",
				"systemctl reset-failed sluice", "systemctl restart --no-block sluice"}, m.asked())
			same(t, "downloads", []string{"/sha256sum-" + arch() + ".txt", "/sluice-" + arch()}, r.downloads())
			first := m.agent()
			if first == "" {
				t.Fatal("no agent runs")
			}
			const start = "\nExecStart=/usr/local/bin/sluice agent --cluster-cidr 10.42.0.0/16,fd42::/56\n"
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
				if unit := m.read("/etc/systemd/system/sluice.service"); !strings.Contains(unit, start) {
					t.Errorf("%s: the arguments are lost:\n%s", version, unit)
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
	for _, test := range []struct {
		name  string
		env   []string
		args  []string
		file  string // has
		text  string
		asked string // the last that systemd was asked
	}{
		{"arguments in a variable", []string{"INSTALL_SLUICE_EXEC=agent --v 4 --healthz-bind-address=[::]:10256"}, nil,
			unit, "ExecStart=" + binary + " agent --v 4 --healthz-bind-address=[::]:10256\n", "systemctl restart --no-block sluice"},
		{"the command's name in front", nil, []string{"agent", "--v", "4"}, unit, "ExecStart=" + binary + " agent --v 4\n", "systemctl restart --no-block sluice"},
		{"options in the environment", []string{"SLUICE_CLUSTER_CIDR=10.42.0.0/16", "SLUICE_HOSTNAME_OVERRIDE=a b"}, nil,
			unit + ".env", "SLUICE_CLUSTER_CIDR='10.42.0.0/16'\nSLUICE_HOSTNAME_OVERRIDE='a b'\n", "systemctl restart --no-block sluice"},
		{"not started", []string{"INSTALL_SLUICE_SKIP_START=true"}, nil, binary, "sluice v1", "systemctl enable sluice"},
		{"not enabled", []string{"INSTALL_SLUICE_SKIP_ENABLE=true"}, nil, binary, "sluice v1", "systemctl daemon-reload"},
		{"another directory", []string{"INSTALL_SLUICE_BIN_DIR=/opt/sluice"}, nil, unit, "ExecStart=/opt/sluice/sluice agent\n", "systemctl restart --no-block sluice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, r := newMachine(t), newRelease(t)
			var clean []string
			r.put("", arch(), program("v1"))
			m.env = test.env
			m.mustInstall(r, test.args...)
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
	m.onlyBusybox()
	m.without("systemctl")
	m.write("/sbin/openrc-run", "", 0o755)
	m.mkdir(m.outside("/etc/conf.d"))
	m.fake("rc-update", `echo "rc-update $*" >>`+fakes+`/log`)
	m.fake("rc-service", `echo "rc-service $*" >>`+fakes+`/log`)
	r.put("", arch(), program("v1"))
	m.settle()
	m.env = []string{"SLUICE_V=4"}
	m.mustInstall(r, "--cluster-cidr", "10.42.0.0/16")
	same(t, "asked of OpenRC", []string{"rc-update add sluice boot", "rc-service sluice restart", "rc-service --quiet sluice status"}, m.asked())
	same(t, "environment", "export SLUICE_V='4'\n", m.read("/etc/conf.d/sluice"))
	m.env = nil
	m.mustInstall(r)
	const start = "\ncommand=/usr/local/bin/sluice\ncommand_args=\"agent --cluster-cidr 10.42.0.0/16\"\n"
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
