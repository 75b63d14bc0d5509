package install

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakes is where programs are that stand for the machine's own. It is not on the
// overlay, so that it is no trace of an installation.
const fakes = "/run/fakes"

// machine is a copy of this one for one test.
type machine struct {
	t     *testing.T
	root  string // what it has as /
	upper string // what was written
	base  []string
	shell []string
	path  string
	env   []string
}

// newMachine makes one with systemd.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, root: filepath.Join(dir, "root"), upper: filepath.Join(dir, "memory/upper"), shell: []string{"/bin/sh"},
		path: fakes + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	memory, work := filepath.Join(dir, "memory"), filepath.Join(dir, "memory/work")
	m.mkdir(m.root)
	m.mkdir(memory)
	m.mount("tmpfs", memory, "tmpfs", "size=100m")
	m.mkdir(m.upper)
	m.mkdir(work)
	overlay := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", m.upper, work)
	if err := unix.Mount("overlay", m.root, "overlay", 0, overlay); err == nil {
		unix.Unmount(m.root, unix.MNT_DETACH)
	} else if b, _ := os.ReadFile("/proc/self/uid_map"); !strings.Contains(string(b), "4294967295") {
		t.Skipf("a copy of this machine needs real root: in a user namespace / has mounts that cannot be copied (%v)", err)
	}
	m.mount("overlay", m.root, "overlay", overlay)
	m.mount("proc", m.outside("/proc"), "proc", "")
	m.memory("/sys", "1m")
	m.memory("/run", "10m")
	m.memory("/tmp", "50m")
	m.memory("/dev", "1m")
	m.write("/dev/null", "", 0o666) // a file in its place: a user namespace cannot make devices
	if err := unix.Mount("/dev/null", m.outside("/dev/null"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	m.mkdir(m.outside(fakes))
	m.fake("systemctl", systemctl)
	m.fake("sync", "")                                                     // it is about the whole machine
	m.fake("sleep", "exec /bin/sleep 0.2")                                 // what starts here starts faster than on a Raspberry Pi
	m.fake("modprobe", `case $* in *ip_tables) exit 1;; *) exit 0;; esac`) // some kernels have it no more
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("ip link: %v\n%s", err, out)
	}
	// What this machine has by chance.
	for _, ours := range []string{"/var/lib/sluice", "/etc/rancher", "/usr/local/bin/sluice", "/usr/local/bin/sluice-uninstall.sh"} {
		if err := os.RemoveAll(m.outside(ours)); err != nil {
			t.Fatal(err)
		}
	}
	m.settle()
	return m
}

// systemctl keeps one service. Its log is what it was asked to do.
const systemctl = `
cd ` + fakes + `
for unit in /etc/systemd/system/sluice.service /srv/units/sluice.service /usr/lib/systemd/system/sluice.service; do [ ! -e "$unit" ] || break; done
alive() { [ -e pid ] && grep -q . "/proc/$(cat pid)/cmdline" 2>/dev/null; } # a zombie has no command line
end() {
	if alive; then
		kill "$(cat pid)"
		for _ in 1 2 3 4 5 6 7 8 9 10; do if alive; then sleep 0.1; fi; done
	fi
	rm -f pid
}
case $1 in
is-active) alive ;;
show)
	case $* in
	*FragmentPath*) [ ! -e "$unit" ] || echo "FragmentPath=$unit" ;;
	*ActiveState*) if alive; then printf 'ActiveState=active\nSubState=running\n'; else printf 'ActiveState=activating\nSubState=auto-restart\n'; fi ;;
	esac
	;;
restart)
	echo "systemctl $*" >>log
	end
	# shellcheck disable=SC2046
	setsid $(sed -n 's/^ExecStart=//p' "$unit") >>agent.log 2>&1 </dev/null &
	echo $! >pid
	;;
disable)
	echo "systemctl $*" >>log
	end
	;;
*) echo "systemctl $*" >>log ;;
esac
`

// outside is where this process finds the machine's file.
func (m *machine) outside(file string) string { return filepath.Join(m.root, file) }

func (m *machine) mkdir(dir string) {
	m.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) mount(what, where, kind, options string) {
	m.t.Helper()
	if err := unix.Mount(what, where, kind, 0, options); err != nil {
		m.t.Fatalf("mount %s at %s: %v", kind, where, err)
	}
	m.t.Cleanup(func() {
		if err := unix.Unmount(where, unix.MNT_DETACH); err != nil {
			m.t.Errorf("unmount %s: %v", where, err)
		}
	})
}

// memory puts an empty file system of a size at a directory.
func (m *machine) memory(dir, size string) {
	m.t.Helper()
	m.mkdir(m.outside(dir))
	m.mount("tmpfs", m.outside(dir), "tmpfs", "mode=755,size="+size)
}

// readOnly makes a directory one that nothing can be written to.
func (m *machine) readOnly(dir string) {
	m.t.Helper()
	m.memory(dir, "1m")
	m.lock(dir)
}

// lock makes the file system at a directory read-only.
func (m *machine) lock(dir string) {
	m.t.Helper()
	if err := unix.Mount("", m.outside(dir), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) write(file, text string, mode fs.FileMode) {
	m.t.Helper()
	m.mkdir(filepath.Dir(m.outside(file)))
	if err := os.WriteFile(m.outside(file), []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(file string) string {
	m.t.Helper()
	b, err := os.ReadFile(m.outside(file))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func (m *machine) exists(file string) bool {
	_, err := os.Lstat(m.outside(file))
	return err == nil
}

// fake puts a program in front of the machine's own.
func (m *machine) fake(name, script string) {
	m.t.Helper()
	m.write(filepath.Join(fakes, name), "#!/bin/sh\n"+script+"\n", 0o755)
}

// without takes a program away.
func (m *machine) without(names ...string) {
	m.t.Helper()
	for _, name := range names {
		for _, dir := range append(strings.Split(m.path, ":"), "/bin", "/sbin", "/usr/bin", "/usr/sbin") {
			if err := os.Remove(m.outside(filepath.Join(dir, name))); err != nil && !os.IsNotExist(err) {
				m.t.Fatal(err)
			}
		}
	}
}

// onlyBusybox leaves the machine busybox and what was put in front of it.
func (m *machine) onlyBusybox() {
	m.t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		m.t.Skip("busybox is not installed (apt-get install busybox-static)")
	}
	m.mkdir(m.outside("/run/busybox"))
	if out, err := exec.Command(busybox, "--install", "-s", m.outside("/run/busybox")).CombinedOutput(); err != nil {
		m.t.Fatalf("busybox --install: %v\n%s", err, out)
	}
	m.path = fakes + ":/usr/local/bin:/run/busybox"
	m.shell = []string{busybox, "sh"}
}

// openRC makes it one of busybox and OpenRC, as Alpine is.
func (m *machine) openRC() {
	m.t.Helper()
	m.onlyBusybox()
	m.without("systemctl")
	m.write("/sbin/openrc-run", "", 0o755)
	m.mkdir(m.outside("/etc/conf.d"))
	m.fake("rc-update", `echo "rc-update $*" >>`+fakes+`/log`)
	m.fake("rc-service", `echo "rc-service $*" >>`+fakes+`/log`)
	m.settle()
}

// run runs a program on the machine.
func (m *machine) run(stdin string, args ...string) (output string, code int) {
	m.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + m.path}, m.env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		m.t.Fatalf("%s: %v", args[0], err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// settle makes what there is now what trace compares with.
func (m *machine) settle() { m.base = nil; m.base = m.trace() }

// trace is what was written since settle was called: files with their modes, and what was removed.
func (m *machine) trace() []string {
	m.t.Helper()
	var list []string
	err := filepath.WalkDir(m.upper, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, m.upper)
		info, err := d.Info()
		if err != nil {
			return err
		}
		if _, below := os.Lstat(filepath.Join("/", name)); d.IsDir() && below == nil {
			return nil // its files were written
		}
		if line := fmt.Sprintf("%v %s", info.Mode(), name); !slices.Contains(m.base, line) {
			list = append(list, line)
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// asked returns what systemctl was asked to do since the last call.
func (m *machine) asked() []string {
	m.t.Helper()
	file := filepath.Join(fakes, "log")
	if !m.exists(file) {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(m.read(file)), "\n")
	if err := os.Remove(m.outside(file)); err != nil {
		m.t.Fatal(err)
	}
	return lines
}

// agent is the process of the service; "" if none runs.
func (m *machine) agent() string {
	m.t.Helper()
	file := filepath.Join(fakes, "pid")
	if !m.exists(file) {
		return ""
	}
	pid := strings.TrimSpace(m.read(file))
	if cmdline, err := os.ReadFile(m.outside("/proc/" + pid + "/cmdline")); err != nil || len(cmdline) == 0 {
		return ""
	}
	return pid
}
