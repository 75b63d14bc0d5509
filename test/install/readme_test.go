package install

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readmeCommands are the lines of commands in the README's section about the installation.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	_, section, found := strings.Cut(repository(t, "README.md"), "\n## Install on ")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("README.md has no section about the installation")
	}
	var commands []string
	for _, match := range regexp.MustCompile(`(?m)^ {4,}(\S.*)$`).FindAllStringSubmatch(section, -1) {
		commands = append(commands, match[1])
	}
	return append(commands, regexp.MustCompile("`(sudo [a-z-]+uninstall.sh)`").FindStringSubmatch(section)[1])
}

// A node of k3s, where the README is followed word by word.
func TestREADME(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	r.set("/install.sh", repository(t, "install.sh"))
	m.fake("curl", `for arg in "$@"; do
	shift
	case $arg in https://github.com/sluice-proxy/sluice/releases/latest/download/*) arg=`+r.URL+`/${arg##*/} ;; esac
	set -- "$@" "$arg"
done
exec /usr/bin/curl "$@"`)
	m.fake("sudo", `[ "$1" = -- ] && shift; exec "$@"`)
	m.fake("reboot", `echo reboot >>`+fakes+`/log`)
	m.fake("systemctl", `case $* in *k3s) echo "systemctl $*" >>`+fakes+`/log; exit ;; esac`+"\n"+systemctl)
	const k3s = "write-kubeconfig-mode: \"0644\"" // its last line has no end
	m.write("/etc/rancher/k3s/config.yaml", k3s, 0o644)

	var first, last string // that installs; that upgrades
	for _, command := range readmeCommands(t) {
		out, code := m.run("", append(slices.Clone(m.shell), "-c", command)...)
		if code != 0 || strings.Contains(out, "[ERROR]") {
			t.Fatalf("%s: exit code %d\n%s", command, code, out)
		}
		if strings.HasPrefix(command, "curl ") {
			if first == "" {
				first = out
				r.put("", arch(), program("v2"))
			}
			last = out
		}
		if started := m.agent() != ""; started != (last != first) && !strings.Contains(command, "uninstall") {
			t.Errorf("%s: sluice runs: %v\n%s", command, started, out)
		}
		if strings.HasPrefix(command, "curl ") {
			same(t, "options", "given: --cluster-cidr 10.42.0.0/16\n", strings.SplitAfterN(m.read(config), "\n", 2)[1])
		}
	}
	if !strings.Contains(first, "k3s was found. Its own kube-proxy must be off") || !strings.Contains(first, "It was not started") {
		t.Errorf("the installation says:\n%s", first)
	}
	if !strings.Contains(last, "k3s was found, with its own kube-proxy switched off") || !strings.Contains(last, "Installed: sluice v2") {
		t.Errorf("the upgrade says:\n%s", last)
	}
	same(t, "k3s's configuration", k3s+"\ndisable-kube-proxy: true\n", m.read("/etc/rancher/k3s/config.yaml"))
	same(t, "asked", []string{"systemctl daemon-reload", "systemctl enable sluice", "systemctl restart k3s", "reboot",
		"systemctl daemon-reload", "systemctl enable sluice", "systemctl reset-failed sluice", "systemctl restart --no-block sluice",
		"systemctl disable --now sluice", "systemctl reset-failed sluice", "cleanup by v2", "systemctl daemon-reload"}, m.asked())
}

// Without a network curl says so: the shell behind it has nothing to do, and is content.
func TestREADMEWithoutNetwork(t *testing.T) {
	m := newMachine(t)
	m.fake("curl", `for arg in "$@"; do
	shift
	case $arg in https://*) arg=http://127.0.0.1:1 ;; esac
	set -- "$@" "$arg"
done
exec /usr/bin/curl "$@"`)
	for _, command := range readmeCommands(t) {
		if !strings.HasPrefix(command, "curl ") {
			continue
		}
		if out, _ := m.run("", append(slices.Clone(m.shell), "-c", command)...); !strings.Contains(out, "curl: (7)") {
			t.Errorf("%s: it is not said that nothing was downloaded:\n%s", command, out)
		}
	}
}
