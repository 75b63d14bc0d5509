package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/test/process"
	"sluice/test/qemu/vm"
)

// hostAddress is what QEMU's user network calls this machine's loopback address.
const hostAddress = "10.0.2.2"

// bootLimit is how long the machine may take to run commands: emulated, and on a busy machine.
const bootLimit = 10 * time.Minute

// guest is the machine.
type guest struct {
	boot          vm.Boot
	key           string // of SSH
	ssh, nodePort string // ports on loopback that lead there
	console       *os.File
	running       *process.Process
}

// newGuest prepares a machine with a disk of its own in a folder.
func newGuest(ctx context.Context, machine, dir string, clock bool) (*guest, error) {
	m, err := vm.Find(machine)
	if err != nil {
		return nil, err
	}
	kernel, err := m.Fetch(ctx)
	if err != nil {
		return nil, err
	}
	disk, err := kernel.Disk(ctx, os.Stdout)
	if err != nil {
		return nil, err
	}
	g := &guest{key: disk.Key}
	image := filepath.Join(dir, "disk")
	if out, err := exec.CommandContext(ctx, "cp", "--sparse=always", disk.Image, image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy the disk: %w: %s", err, out)
	}
	g.boot = vm.Boot{Kernel: kernel, MiB: 512, Initramfs: filepath.Join(dir, "initramfs")}
	r, err := vm.NewInitramfs(ctx, kernel, g.boot.Initramfs)
	if err != nil {
		return nil, err
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	for _, port := range []*string{&g.ssh, &g.nodePort} {
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	g.boot.Args = append(vm.DriveArgs(image, "writeback"), "-device", "virtio-net-device,netdev=net", "-netdev",
		fmt.Sprintf("user,id=net,hostfwd=tcp:127.0.0.1:%s-:22,hostfwd=tcp:127.0.0.1:%s-:%d", g.ssh, g.nodePort, nodePort))
	if clock { // unlike there it waits when it has nothing to do, as it talks with this machine
		g.boot.Args = append(g.boot.Args, "-icount", "shift=1,sleep=on")
	}
	g.console, err = os.Create(filepath.Join(dir, "console"))
	g.boot.Console = g.console
	return g, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// start switches the machine on and waits until it runs commands.
func (g *guest) start(ctx context.Context) (err error) {
	if g.running, err = g.boot.Start(ctx); err != nil {
		return err
	}
	return g.await(ctx, bootLimit, func() error {
		select {
		case <-g.running.Ended:
			return fmt.Errorf("the machine switched itself off; see %s", g.console.Name())
		default:
		}
		_, err := g.run(ctx, "true")
		return err
	})
}

// cutPower switches the machine off as a plug does.
func (g *guest) cutPower() { g.running.Kill() }

// restart restarts the machine in good order.
func (g *guest) restart(ctx context.Context) error {
	if _, err := g.run(ctx, "systemctl reboot --no-wall"); err != nil {
		return err
	}
	select {
	case <-g.running.Ended:
	case <-time.After(bootLimit):
		return errors.New("the machine does not shut down")
	}
	return g.start(ctx)
}

// await calls fn until it succeeds.
func (g *guest) await(ctx context.Context, limit time.Duration, fn func() error) error {
	for deadline := time.Now().Add(limit); ; {
		err := fn()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// run runs a script of sh as root and returns what it prints.
func (g *guest) run(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", "-i", g.key, "-p", g.ssh, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60", "-o", "BatchMode=yes", "root@127.0.0.1", "sh -s")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("set -eu\n"+script+"\n"), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run in the machine: %w\n%s\n%s%s", err, script, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String() + stderr.String(), nil
}

// close ends the machine.
func (g *guest) close() error {
	if g.running != nil {
		g.running.Kill()
	}
	return g.console.Close()
}
