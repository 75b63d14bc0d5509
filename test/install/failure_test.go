package install

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Whatever goes wrong is one clear error. Nothing is half installed, and what was installed goes on.
func TestFailures(t *testing.T) {
	sums := "/sha256sum-" + arch() + ".txt"
	for _, test := range []struct {
		name string
		want string // part of the error
		fail func(m *machine, r *release)
	}{
		{"wrong hash", "SHA-256", func(_ *machine, r *release) { r.set("/sluice-"+arch(), program("v2")+"?") }},
		{"truncated", "Cannot download", func(_ *machine, r *release) { r.set("/sluice-"+arch(), "cut off") }},
		{"no such release", "404", func(m *machine, _ *release) { m.env = []string{"INSTALL_SLUICE_VERSION=v99"} }},
		{"no server", "Cannot download", func(m *machine, _ *release) { m.env = []string{"INSTALL_SLUICE_URL=http://127.0.0.1:1"} }},
		{"sent on from HTTPS to HTTP", "Cannot download", func(m *machine, r *release) {
			secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				http.Redirect(w, req, r.URL+req.URL.Path, http.StatusFound)
			}))
			m.t.Cleanup(secure.Close)
			m.fake("curl", `exec /usr/bin/curl -k "$@"`) // its certificate is nobody's
			m.env = []string{"INSTALL_SLUICE_URL=" + secure.URL}
		}},
		{"a page in place of hashes", "no release", func(_ *machine, r *release) { r.set(sums, "<html>Log in to this network</html>\n") }},
		{"full disk for programs", "full", func(m *machine, _ *release) { m.fill("/usr/local/bin", 200<<10) }},
		{"full disk for the last files", "full", func(m *machine, _ *release) {
			m.fill("/etc/modules-load.d", 1)
			m.write("/etc/modules-load.d/filler.conf", strings.Repeat("#", 4096), 0o644)
		}},
		{"full disk for the options", "full", func(m *machine, _ *release) {
			m.fill("/etc/rancher", 1)
			m.write("/etc/rancher/filler", strings.Repeat("#", 4096), 0o644)
		}},
		{"a directory that cannot be made", "cannot be made", func(m *machine, _ *release) {
			m.readOnly("/opt")
			m.env = []string{"INSTALL_SLUICE_BIN_DIR=/opt/new/sluice"}
		}},
		{"options that the agent does not know", "unknown flag --no-such-flag", func(m *machine, _ *release) {
			m.env = []string{"INSTALL_SLUICE_EXEC=--no-such-flag", "INSTALL_SLUICE_BIN_DIR=/usr/local/a/b"}
		}},
		{"full temporary directory", "Cannot download", func(m *machine, _ *release) { m.memory("/tmp", "100k") }},
		{"no temporary directory", "TMPDIR", func(m *machine, _ *release) { m.readOnly("/tmp") }},
		{"read-only", "/usr/local/bin", func(m *machine, _ *release) { m.freeze("/usr/local/bin") }},
		{"unknown CPU", "no sluice for this machine: ppc64le", func(m *machine, _ *release) {
			m.fake("uname", `case $1 in -m) echo ppc64le;; *) echo Linux;; esac`)
		}},
		{"32-bit x86 system", "32-bit", func(m *machine, _ *release) {
			m.fake("uname", `case $1 in -m) echo x86_64;; *) echo Linux;; esac`)
			m.fake("getconf", "echo 32")
		}},
		{"not Linux", "Linux", func(m *machine, _ *release) { m.fake("uname", "echo Darwin") }},
		{"neither curl nor wget", "curl", func(m *machine, _ *release) { m.without("curl", "wget") }},
		{"no sha256sum", "sha256sum", func(m *machine, _ *release) { m.without("sha256sum") }},
		{"no service manager", "systemd", func(m *machine, _ *release) { m.without("systemctl") }},
		{"not root and no sudo", "root", func(m *machine, _ *release) { m.fake("id", "echo 1000"); m.without("sudo") }},
		{"sudo refuses", "sudo", func(m *machine, _ *release) { m.fake("id", "echo 1000"); m.fake("sudo", "exit 1") }},
		{"a program for another CPU", "does not run", func(_ *machine, r *release) { r.put("", arch(), "\x7fELF\n") }},
		{"air gap without a program", "missing", func(m *machine, _ *release) {
			m.env = []string{"INSTALL_SLUICE_SKIP_DOWNLOAD=true", "INSTALL_SLUICE_BIN_DIR=/usr/local/sbin"}
		}},
		{"a path with a blank", "absolute path", func(m *machine, _ *release) { m.env = []string{"INSTALL_SLUICE_BIN_DIR=/opt/a b"} }},
		{"a path that looks like a variable", `must have no "="`, func(m *machine, _ *release) { m.env = []string{"INSTALL_SLUICE_BIN_DIR=/opt/a=b"} }},
		{"kube-proxy runs", "process ", func(m *machine, _ *release) { m.startKubeProxy() }},
		{"rules of kube-proxy", "KUBE-SERVICES (iptables-save", func(m *machine, _ *release) { m.sh("iptables -t nat -N KUBE-SERVICES") }},
		{"IPv6 rules of kube-proxy", "KUBE-SERVICES (ip6tables-save", func(m *machine, _ *release) { m.sh("ip6tables -t nat -N KUBE-SERVICES") }},
		{"table of kube-proxy", "table ip kube-proxy", func(m *machine, _ *release) { m.sh("nft add table ip kube-proxy") }},
		{"IPVS of kube-proxy", "kube-ipvs0", func(m *machine, _ *release) { m.mkdir(m.outside("/sys/class/net/kube-ipvs0")) }},
	} {
		for _, state := range []string{"new", "upgrade"} {
			t.Run(test.name+"/"+state, func(t *testing.T) {
				m, r := newMachine(t), newRelease(t)
				if state == "upgrade" {
					r.put("", arch(), program("v1"))
					m.mustInstall(r)
				}
				r.put("", arch(), program("v2"))
				test.fail(m, r)
				before, agent := m.files(), m.agent()
				m.asked()
				out, code := m.install(r, "--v", "4")
				if code != 1 || strings.Count(out, "[ERROR]") != 1 || !strings.Contains(out[strings.Index(out, "[ERROR]"):], test.want) {
					t.Errorf("exit code %d, want 1 and one [ERROR] with %q:\n%s", code, test.want, out)
				}
				same(t, "files", before, m.files())
				same(t, "asked of systemd", []string(nil), m.asked())
				if m.agent() != agent {
					t.Error("the agent is another, or none")
				}
			})
		}
	}
}

// files is what there is in the places of an installation: directories, and files with sizes and times.
func (m *machine) files() (list []string) {
	m.t.Helper()
	for _, dir := range []string{"/usr/local", "/opt", "/etc/rancher", "/etc/systemd/system", "/etc/modules-load.d", "/etc/sysctl.d", "/tmp"} {
		err := filepath.WalkDir(m.outside(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && d.IsDir() {
				list = append(list, strings.TrimPrefix(path, m.root))
			} else if err == nil {
				list = append(list, fmt.Sprintf("%v %d %v %s", info.Mode(), info.Size(), info.ModTime(), strings.TrimPrefix(path, m.root)))
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.t.Fatal(err)
		}
	}
	return list
}

// sh runs a command in the machine's network, and undoes it at the end by taking rules away.
func (m *machine) sh(command string) {
	m.t.Helper()
	m.t.Cleanup(func() {
		exec.Command("nft", "flush", "ruleset").Run()
	})
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		m.t.Skipf("%s: %v\n%s", command, err, out)
	}
}

// startKubeProxy starts a process of that name.
func (m *machine) startKubeProxy() {
	m.t.Helper()
	m.write(fakes+"/kube-proxy", "#!/bin/sh\nread -r line\n", 0o755)
	cmd := exec.Command(m.outside(fakes + "/kube-proxy"))
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
}

// fill puts a file system in place of a directory that has room for so many bytes beside what there is of sluice.
func (m *machine) fill(dir string, room int) {
	m.t.Helper()
	ours, err := filepath.Glob(m.outside(dir + "/sluice*"))
	if err != nil {
		m.t.Fatal(err)
	}
	text := map[string]string{}
	for _, file := range ours {
		text[file] = m.read(strings.TrimPrefix(file, m.root))
		room += (len(text[file]) + 4095) &^ 4095
	}
	m.memory(dir, strconv.Itoa(room))
	for file, t := range text {
		m.write(strings.TrimPrefix(file, m.root), t, 0o755)
	}
}

// freeze makes a directory read-only as it is.
func (m *machine) freeze(dir string) {
	m.t.Helper()
	m.fill(dir, 1<<20)
	m.lock(dir)
}

// An upgrade that does not start is taken back; a first installation stays, so that its log can be read.
func TestDoesNotStart(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r, "--v", "1")
	before, first := m.files(), m.agent()
	r.put("", arch(), broken("v2"))
	out, code := m.install(r, "--v", "2")
	if code != 1 || !strings.Contains(out, "journalctl -u sluice tells why. The earlier one is back in place") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	same(t, "files", before, m.files())
	if m.agent() == "" || m.agent() == first {
		t.Errorf("the agent is %q, it was %q: want a new one of the earlier version", m.agent(), first)
	}

	m = newMachine(t)
	out, code = m.install(r)
	if code != 1 || !strings.Contains(out, "sluice-uninstall.sh") {
		t.Errorf("first installation: exit code %d\n%s", code, out)
	}
	same(t, "files", installed, m.trace())
}

// With OpenRC it is taken back, too, and the log is a file.
func TestDoesNotStartWithOpenRC(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	m.openRC()
	r.put("", arch(), program("v1"))
	m.mustInstall(r)
	before := m.files()
	r.put("", arch(), program("v2"))
	m.fake("rc-service", `[ "$2" != restart ] || ! grep -q 'sluice v2' /usr/local/bin/sluice`)
	out, code := m.install(r)
	if code != 1 || !strings.Contains(out, "/var/log/sluice.log tells why. The earlier one is back in place") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	same(t, "files", before, m.files())
}

// Beside kube-proxy it is installed if it is not started, or by force. It says what is to be done then.
func TestBesideKubeProxy(t *testing.T) {
	const restart = "[INFO]  It was not started. Switch kube-proxy off and restart this machine"
	for env, want := range map[string]string{
		"INSTALL_SLUICE_FORCE=true":       `status" tells how it is`,
		"INSTALL_SLUICE_SKIP_START=true":  restart,
		"INSTALL_SLUICE_SKIP_ENABLE=true": `"sudo systemctl enable --now sluice" starts it`,
	} {
		m, r := newMachine(t), newRelease(t)
		r.put("", arch(), program("v1"))
		m.startKubeProxy()
		m.env = []string{env}
		out := m.mustInstall(r)
		if !strings.Contains(out, "[WARN]  kube-proxy is at work") || !strings.Contains(out, want) || strings.Contains(out, restart) != (want == restart) {
			t.Errorf("%s: no warning, or not %q:\n%s", env, want, out)
		}
	}
}

func TestK3s(t *testing.T) {
	for config, want := range map[string]string{
		"write-kubeconfig-mode: \"0644\"\n":  "disable-kube-proxy: true\n",
		"disable-kube-proxy: true\n":         "switched off",
		"disable-kube-proxy: \"true\" # x\n": "switched off",
	} {
		m, r := newMachine(t), newRelease(t)
		r.put("", arch(), program("v1"))
		m.write("/etc/rancher/k3s/config.yaml", config, 0o644)
		if out := m.mustInstall(r); !strings.Contains(out, want) {
			t.Errorf("%q: want %q:\n%s", config, want, out)
		}
		if out, code := m.run("", "/usr/local/bin/sluice-uninstall.sh"); code != 0 {
			t.Errorf("uninstall: exit code %d\n%s", code, out)
		}
		same(t, "k3s's configuration", config, m.read("/etc/rancher/k3s/config.yaml"))
	}
}

// A script that was cut off on its way does nothing, and says so.
func TestCutOff(t *testing.T) {
	script := repository(t, "install.sh")
	begin := strings.Index(script, "\n{\n") + 3
	m := newMachine(t)
	m.env = []string{"INSTALL_SLUICE_URL=http://127.0.0.1:1"}
	for end := begin; end < len(script)-2; end += 997 {
		for _, shell := range [][]string{{"/bin/dash"}, {"/bin/bash"}} {
			if out, code := m.run(script[:end], shell...); code == 0 || strings.Contains(out, "[") && strings.Contains(out, "INFO") {
				t.Errorf("%v, %d bytes: exit code %d\n%s", shell, end, code, out)
			}
		}
	}
	if trace := m.trace(); len(trace) > 0 || m.asked() != nil {
		t.Errorf("it did something: %q", trace)
	}
}
