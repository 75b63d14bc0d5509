package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Suite is the Debian release that everything is from: the last one for the ARMv6 of a Pi Zero. Linux 6.1.
const Suite = "bookworm"

// tools are the packages of the programs that tests run.
var tools = []string{"nftables", "iptables", "iproute2", "kmod"}

// Kernel is a machine's kernel and tools, unpacked.
type Kernel struct {
	Machine *Machine
	Version string

	root  string // everything, as the packages have it
	image string
}

// CacheDir is the folder for downloads and what is made of them.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "sluice", "qemu")
	return dir, os.MkdirAll(dir, 0o755)
}

// Keep makes a file or a folder in the cache, once: fn makes it under another name. Two processes do not do it at the same time.
func Keep(name string, fn func(path string) error) (path string, err error) {
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	unfinished := path + ".new"
	err = os.RemoveAll(unfinished)
	if err == nil {
		err = fn(unfinished)
	}
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return "", fmt.Errorf("make %s: %w", path, errors.Join(err, os.RemoveAll(unfinished)))
	}
	return path, nil
}

// Fetch returns the machine's kernel, which it downloads the first time.
func (m *Machine) Fetch(ctx context.Context) (*Kernel, error) {
	root, err := Keep(m.Debian+"-"+Suite, func(path string) error { return m.download(ctx, path) })
	if err != nil {
		return nil, err
	}
	images, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("package %s has %d kernels, want one", m.kernel, len(images))
	}
	_, version, _ := strings.Cut(filepath.Base(images[0]), "-")
	return &Kernel{m, version, root, images[0]}, nil
}

// download unpacks the packages into a folder.
func (m *Machine) download(ctx context.Context, root string) error {
	mirror, err := Mirror(ctx)
	if err != nil {
		return err
	}
	apt := root + ".apt"
	defer os.RemoveAll(apt)
	for _, dir := range []string{"etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, dir), 0o755); err != nil {
			return err
		}
	}
	config := filepath.Join(apt, "apt.conf")
	for path, text := range map[string]string{
		config: fmt.Sprintf("Dir %q;\nDir::State::status \"/dev/null\";\nAPT::Architecture %q;\nAPT::Architectures { %[2]q; };\n"+
			"APT::Install-Recommends \"false\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n", apt, m.Debian),
		filepath.Join(apt, "etc/apt/sources.list"): fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, Suite),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	// To apt nothing is installed, so that it brings all that these packages need.
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--download-only", m.kernel}, tools...)} {
		if _, err := run(ctx, []string{"APT_CONFIG=" + config}, "apt-get", append([]string{"-q"}, args...)...); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(apt, "var/cache/apt/archives/*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if _, err := run(ctx, nil, "dpkg-deb", "-x", p, root); err != nil {
			return err
		}
	}
	modules, err := filepath.Glob(filepath.Join(root, "lib/modules/*"))
	if err != nil || len(modules) != 1 {
		return fmt.Errorf("package %s has modules of %d kernels, want one", m.kernel, len(modules))
	}
	_, err = run(ctx, nil, "depmod", "-b", root, filepath.Base(modules[0])) // the package leaves this to its installation
	return err
}

// Mirror is the Debian archive that this machine's apt uses.
func Mirror(ctx context.Context) (string, error) {
	out, err := run(ctx, nil, "apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if uri, ok := strings.CutSuffix(strings.TrimSpace(line), " Debian Debian"); ok {
			return uri, nil
		}
	}
	return "", errors.New("this machine's apt knows no Debian archive: run apt-get update")
}

// run runs a command and returns what it prints.
func run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %q: %w: %s", cmd.Args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
