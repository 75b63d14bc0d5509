package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The real program: its rules come with the installation, are there at every moment of an upgrade, and go with it.
func TestRules(t *testing.T) {
	m, r := newMachine(t), newRelease(t)
	file := filepath.Join(t.TempDir(), "sluice")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", file, "sluice")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m.write("/srv/services.yaml", repository(t, "examples/clusterip.yaml"), 0o644)
	m.settle()
	r.put("", arch(), string(program))
	m.mustInstall(r, "--manifests", "/srv", "--hostname-override", "node", "--cluster-cidr", "10.244.0.0/16")
	same(t, "options", "cluster-cidr:\n- 10.244.0.0/16\nhostname-override: node\nmanifests: /srv\n", strings.SplitAfterN(m.read(config), "\n", 2)[1])
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent:\n%s", m.read(fakes+"/agent.log"))
		}
		if m.agent() != "" {
			m.run("", "/usr/local/bin/sluice-uninstall.sh")
		}
	})
	served := func() bool {
		out, _ := exec.Command("nft", "list", "table", "ip", "sluice").CombinedOutput()
		return strings.Contains(string(out), "10.96.0.10 . ")
	}
	for deadline := time.Now().Add(30 * time.Second); !served(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there are no rules 30 s after the installation")
		}
	}

	before := m.agent()
	r.put("", arch(), string(program)+"another")
	stop, gaps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				gaps <- n
				return
			case <-time.After(10 * time.Millisecond):
				if !served() {
					n++
				}
			}
		}
	}()
	m.mustInstall(r)
	close(stop)
	if n := <-gaps; n > 0 {
		t.Errorf("the rules were away %d times in the upgrade", n)
	}
	if after := m.agent(); after == "" || after == before {
		t.Errorf("the agent is %q, it was %q", after, before)
	}

	if out, code := m.run("", "/usr/local/bin/sluice-uninstall.sh"); code != 0 {
		t.Errorf("uninstall: exit code %d\n%s", code, out)
	}
	same(t, "what is left", []string(nil), m.trace())
	if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil || strings.Contains(string(out), "sluice") {
		t.Errorf("tables that are left (%v):\n%s", err, out)
	}
	if m.agent() != "" {
		t.Error("the agent runs on")
	}
}

// What systemd itself says of the unit.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (apt-get install systemd)")
	}
	m, r := newMachine(t), newRelease(t)
	r.put("", arch(), program("v1"))
	m.mustInstall(r, "--cluster-cidr", "10.42.0.0/16,fd42::/56", "--healthz-bind-address=[::]:10256")
	const unit = "/etc/systemd/system/sluice.service"
	if out, code := m.run("", "/usr/bin/systemd-analyze", "verify", "--man=no", unit); code != 0 || strings.Contains(out, "sluice") {
		t.Errorf("systemd-analyze verify: exit code %d\n%s", code, out)
	}
	// Exposure 2.5 of 10 at most.
	if out, code := m.run("", "/usr/bin/systemd-analyze", "security", "--offline=yes", "--threshold=25", unit); code != 0 {
		t.Errorf("systemd-analyze security: exit code %d\n%s", code, out)
	}
}
