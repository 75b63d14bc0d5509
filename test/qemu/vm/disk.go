package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// system are the packages of a disk, besides those that Debian always has.
var system = []string{"systemd-sysv", "udev", "kmod", "iproute2", "nftables", "procps", "curl", "ca-certificates", "openssh-server", "busybox"}

// diskSize is that of the file system, most of which is a hole in its file.
const diskSize = "2G"

// installLimit is generous: emulated, some 100 packages are installed.
const installLimit = time.Hour

// Disk is a file system with Debian and systemd, and the key of who may log in there.
type Disk struct {
	// Image is a raw disk, Key the SSH key of its root user.
	Image, Key string
}

// firstInit is the init of the first boot, which installs the packages and is replaced by systemd's meanwhile.
const firstInit = `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/debootstrap/debootstrap --second-stage && rm -rf /var/cache/apt/archives/*.deb /etc/dpkg/dpkg.cfg.d/fast && echo "init: SUCCEEDED"
mount -t proc proc /proc 2>/dev/null # debootstrap has unmounted it
sync
mount -o remount,ro /
echo b >/proc/sysrq-trigger
`

// Disk returns the disk of a machine, which it makes the first time: that needs root, and some minutes.
func (k *Kernel) Disk(ctx context.Context, console io.Writer) (*Disk, error) {
	dir, err := Keep(k.Machine.Debian+"-"+Suite+"-disk", func(dir string) error { return k.makeDisk(ctx, dir, console) })
	if err != nil {
		return nil, err
	}
	return &Disk{filepath.Join(dir, "disk"), filepath.Join(dir, "key")}, nil
}

func (k *Kernel) makeDisk(ctx context.Context, dir string, console io.Writer) error {
	unpacked, err := Keep(k.Machine.Debian+"-"+Suite+"-unpacked", func(root string) error { return k.unpack(ctx, root) })
	if err != nil {
		return err
	}
	image, key := filepath.Join(dir, "disk"), filepath.Join(dir, "key")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := run(ctx, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key); err != nil {
		return err
	}
	authorized := filepath.Join(unpacked, "root/.ssh/authorized_keys")
	if _, err := run(ctx, nil, "install", "-D", "-m", "600", key+".pub", authorized); err != nil {
		return err
	}
	if err := MakeDisk(ctx, image, unpacked, diskSize); err != nil {
		return err
	}
	return k.install(ctx, dir, image, console)
}

// unpack makes a folder of which the first boot makes a system.
func (k *Kernel) unpack(ctx context.Context, root string) error {
	mirror, err := Mirror(ctx)
	if err != nil {
		return err
	}
	for _, command := range [][]string{
		{"debootstrap", "--foreign", "--variant=minbase", "--arch=" + k.Machine.Debian, "--include=" + strings.Join(system, ","), Suite, root, mirror},
		{"cp", "-r", filepath.Join(k.root, "lib/modules"), filepath.Join(root, "usr/lib")},
		{"rm", "-f", filepath.Join(root, "proc")}, // in a container it is a link to that of the host
		{"mkdir", "-p", filepath.Join(root, "proc"), filepath.Join(root, "etc/systemd/system/multi-user.target.wants"), filepath.Join(root, "etc/systemd/network")},
		{"ln", "-s", "/lib/systemd/system/systemd-networkd.service", filepath.Join(root, "etc/systemd/system/multi-user.target.wants")},
	} {
		if _, err := run(ctx, nil, command[0], command[1:]...); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"sbin/init":                         firstInit,
		"etc/hostname":                      "node1\n",
		"etc/dpkg/dpkg.cfg.d/fast":          "force-unsafe-io\n",
		"etc/systemd/network/wired.network": "[Match]\nType=ether\nName=e*\n[Network]\nDHCP=ipv4\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// install boots the disk for the first time.
func (k *Kernel) install(ctx context.Context, dir, image string, console io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	initramfs := filepath.Join(dir, "initramfs")
	r, err := NewInitramfs(ctx, k, initramfs)
	if err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	b := Boot{Kernel: k, MiB: 1024, Initramfs: initramfs, Args: DriveArgs(image, "unsafe")}
	succeeded, err := b.Run(ctx, func(line string) { fmt.Fprintln(console, line) })
	if err == nil && !succeeded {
		err = errors.New("the installation did not succeed (see above)")
	}
	return errors.Join(err, os.Remove(initramfs))
}

// MakeDisk makes an image of a file system with what is in a folder. The size is as mke2fs(8) takes it.
func MakeDisk(ctx context.Context, image, folder, size string) error {
	_, err := run(ctx, nil, "mke2fs", "-q", "-t", "ext4", "-d", folder, image, size)
	return err
}

// DriveArgs are QEMU's arguments for a disk. The cache is one of QEMU's modes.
func DriveArgs(image, cache string) []string {
	return []string{"-drive", "if=none,id=disk,format=raw,file=" + image + ",cache=" + cache, "-device", "virtio-blk-device,drive=disk"}
}
