package vm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sluice/test/process"
)

// Machine is a board that QEMU emulates, and what Debian has for it.
type Machine struct {
	Name string
	// GOARCH and GOARM are what Go calls its CPU.
	GOARCH, GOARM string
	// Release is what its program is called in a release.
	Release string
	// Debian is what Debian calls its architecture.
	Debian string
	// MiB is the memory that the board always has; 0: as much as it is given.
	MiB int

	kernel string   // package
	qemu   []string // the program and the board
	dtb    string   // of boards that QEMU does not describe to the kernel itself
	params []string // of its kernel
}

// Machines are the boards there are.
var Machines = []Machine{
	{
		Name: "arm64", GOARCH: "arm64", Release: "arm64", Debian: "arm64", kernel: "linux-image-cloud-arm64",
		qemu: []string{"qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a53"},
	}, {
		Name: "armv7", GOARCH: "arm", GOARM: "7", Release: "armv7", Debian: "armhf", kernel: "linux-image-armmp",
		qemu: []string{"qemu-system-arm", "-M", "virt", "-cpu", "cortex-a7"},
	}, { // a Raspberry Pi Zero
		Name: "armv6", GOARCH: "arm", GOARM: "6", Release: "armv6", Debian: "armel", kernel: "linux-image-rpi", MiB: 512,
		qemu: []string{"qemu-system-arm", "-M", "raspi0"}, dtb: "bcm2835-rpi-zero.dtb",
		// QEMU 7.2 has no such device: the driver's access to it is fatal.
		params: []string{"initcall_blacklist=bcm2835_power_driver_init"},
	},
}

// Find returns the machine of a name.
func Find(name string) (*Machine, error) {
	i := slices.IndexFunc(Machines, func(m Machine) bool { return m.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no machine is called %q", name)
	}
	return &Machines[i], nil
}

// params are for all machines: an oops ends the test, QEMU ends when the machine restarts, and
// as little memory as can be is set aside for anything. A root file system of the kind tmpfs would hold half of the memory only.
var params = []string{"console=ttyAMA0", "loglevel=4", "oops=panic", "panic=-1", "rootfstype=ramfs", "cma=0", "cryptomgr.notests"}

// Boot is how a machine is started.
type Boot struct {
	Kernel *Kernel
	// MiB is the memory of a machine that has none of its own.
	MiB int
	// Initramfs is a file that an Initramfs wrote.
	Initramfs string
	// Console gets what the machine prints.
	Console io.Writer
	// Args are more arguments of QEMU, Params more parameters of the kernel.
	Args, Params []string
}

// succeeded is what an init says at its end when all went well.
const succeeded = "init: SUCCEEDED"

// Run switches the machine on and hands over what it prints until it is off, and tells whether its init succeeded.
func (b Boot) Run(ctx context.Context, line func(string)) (success bool, err error) {
	console, output := io.Pipe()
	b.Console = output
	p, err := b.Start(ctx)
	if err != nil {
		return false, err
	}
	go func() {
		<-p.Ended
		output.Close()
	}()
	for lines := bufio.NewScanner(console); lines.Scan(); {
		text := strings.TrimRight(lines.Text(), "\r")
		success = success || text == succeeded
		line(text)
	}
	return success, ctx.Err()
}

// Start switches the machine on. It is off when the process has ended.
func (b *Boot) Start(ctx context.Context) (*process.Process, error) {
	m := b.Kernel.Machine
	args := append(slices.Clone(m.qemu[1:]), "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", b.Kernel.image, "-initrd", b.Initramfs, "-append", strings.Join(slices.Concat(params, m.params, b.Params), " "))
	if m.MiB == 0 {
		args = append(args, "-m", fmt.Sprint(b.MiB))
	}
	if m.dtb != "" {
		found, err := filepath.Glob(filepath.Join(b.Kernel.root, "usr/lib/linux-image-*", m.dtb))
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("package %s has %d files %s, want one", m.kernel, len(found), m.dtb)
		}
		args = append(args, "-dtb", found[0])
	}
	cmd := exec.CommandContext(ctx, m.qemu[0], append(args, b.Args...)...)
	cmd.Stdout, cmd.Stderr = b.Console, b.Console
	return process.Start(nil, cmd)
}
