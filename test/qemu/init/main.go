// Command init is the first process of a machine of package vm. It runs the commands that the initramfs has, one after
// the other up to the first that fails, says so, and restarts the machine; or, without commands, goes on to the system on a disk.
// The commands run in /test, which is the disk where the initramfs has none.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("init: FAILED:", err)
	} else {
		fmt.Println("init: SUCCEEDED")
	}
	_ = exec.Command("modprobe", "-q", "bcm2835_wdt").Run() // what restarts a Raspberry Pi
	unix.Sync()
	fmt.Println("init: cannot restart:", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
	select {}
}

func run() error {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for name, value := range map[string]string{"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	commands, err := os.ReadFile("/commands")
	if errors.Is(err, os.ErrNotExist) {
		return goToDisk()
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat("/test"); errors.Is(err, os.ErrNotExist) {
		if err := errors.Join(os.Mkdir("/test", 0o755), mountDisk("/test")); err != nil {
			return err
		}
	}
	_ = exec.Command("modprobe", "-q", "br_netfilter").Run() // an installation has it loaded; by itself the kernel does not
	fmt.Println("init: started")
	for line := range strings.Lines(string(commands)) {
		words := strings.Fields(line)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = "/test", os.Stdout, os.Stderr
		fmt.Println("init:", strings.TrimSpace(line))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", words[0], err)
		}
	}
	return nil
}

func mountDisk(at string) error {
	if out, err := exec.Command("modprobe", "-a", "virtio_mmio", "virtio_blk", "virtio_net", "ext4").CombinedOutput(); err != nil {
		return fmt.Errorf("load the disk's modules: %w: %s", err, out)
	}
	if err := unix.Mount("/dev/vda", at, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return nil
}

// goToDisk replaces this program by the init of the system on the disk.
func goToDisk() error {
	if err := mountDisk("/disk"); err != nil {
		return err
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := unix.Mount(dir, "/disk"+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := errors.Join(unix.Chdir("/disk"), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("make the disk the root: %w", err)
	}
	return fmt.Errorf("execute /sbin/init: %w", unix.Exec("/sbin/init", []string{"/sbin/init"}, os.Environ()))
}
