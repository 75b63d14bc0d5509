package vm

import (
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Initramfs is what a machine's kernel starts with: kernel modules, tools, and an init (package
// sluice/test/qemu/init) that runs commands, or goes on to a disk.
type Initramfs struct {
	kernel  *Kernel
	without []string
	file    *os.File
	gzip    *gzip.Writer // a machine of little memory must hold the archive and what it unpacks at the same time
	cpio    cpio
}

// modules are the names of kernel modules, and the folders of modules, that machines have, with all that these need.
var modules = []string{
	"net/netfilter/", "net/ipv4/netfilter/", "net/ipv6/netfilter/", "net/bridge/", "net/sctp/",
	"veth", "dummy", "virtio_mmio", "virtio_pci", "virtio_blk", "virtio_net", "ext4", "crc32c_generic", "bcm2835_wdt",
}

// programs are the tools' files, by the place that they get.
var programs = map[string]string{
	"sbin/modprobe": "bin/kmod", "bin/ip": "bin/ip", "usr/sbin/nft": "usr/sbin/nft",
	"usr/sbin/xtables-nft-multi": "usr/sbin/xtables-nft-multi", "usr/sbin/xtables-legacy-multi": "usr/sbin/xtables-legacy-multi",
}

// NewInitramfs begins one in a file. The kernel modules of these names, and those that need them, are not in it.
func NewInitramfs(ctx context.Context, k *Kernel, file string, without ...string) (*Initramfs, error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	r := &Initramfs{kernel: k, without: without, file: f, gzip: gzip.NewWriter(f)}
	r.cpio = cpio{w: r.gzip, seen: map[string]bool{}}
	r.cpio.entry("dev/console", unix.S_IFCHR|0o600, unix.Mkdev(5, 1), nil)
	for _, dir := range []string{"disk", "proc", "run", "sys", "tmp"} {
		r.cpio.entry(dir, unix.S_IFDIR|0o755, 0, nil)
	}
	init := file + ".init"
	defer os.Remove(init)
	err = k.Machine.Build(ctx, init, "build", "./test/qemu/init")
	if err == nil {
		err = r.Add("init", init)
	}
	if err == nil {
		err = r.addModules()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Build runs go build, or another of its commands, for the machine.
func (m *Machine) Build(ctx context.Context, output string, args ...string) error {
	args = append(args[:1:1], append([]string{"-trimpath", "-ldflags", "-s -w", "-o", output}, args[1:]...)...)
	_, err := run(ctx, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + m.GOARCH, "GOARM=" + m.GOARM}, "go", args...)
	return err
}

// Add copies a file, or a folder with all that is in it.
func (r *Initramfs) Add(name, from string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		r.cpio.file(path.Join(name, strings.TrimPrefix(p, from)), info.Mode(), content)
		return r.cpio.err
	})
}

// Commands says what the init runs, a line each.
func (r *Initramfs) Commands(lines ...string) {
	r.cpio.file("commands", 0o644, []byte(strings.Join(lines, "\n")))
}

func (r *Initramfs) addModules() error {
	dir := path.Join("lib/modules", r.kernel.Version)
	deps, err := os.ReadFile(filepath.Join(r.kernel.root, dir, "modules.dep"))
	if err != nil {
		return err
	}
	// A line is a module and all modules that it needs. The indices stay those of all modules.
	for line := range strings.Lines(string(deps)) {
		files := strings.Fields(strings.Replace(line, ":", "", 1))
		if !wanted(files[0]) || slices.ContainsFunc(files, r.lacks) {
			continue
		}
		for _, f := range files {
			if err := r.Add(path.Join(dir, f), filepath.Join(r.kernel.root, dir, f)); err != nil {
				return err
			}
		}
	}
	indices, err := filepath.Glob(filepath.Join(r.kernel.root, dir, "modules.*"))
	for _, i := range indices {
		err = errors.Join(err, r.Add(path.Join(dir, filepath.Base(i)), i))
	}
	return errors.Join(err, r.AddProgram("sbin/modprobe"))
}

func wanted(module string) bool {
	for _, m := range modules {
		if strings.HasSuffix(m, "/") && strings.HasPrefix(module, "kernel/"+m) || path.Base(module) == m+".ko" {
			return true
		}
	}
	return false
}

// lacks tells whether a module is to be left out.
func (r *Initramfs) lacks(module string) bool {
	return slices.Contains(r.without, strings.TrimSuffix(path.Base(module), ".ko"))
}

// AddTools adds nft, ip, and iptables in both its variants. The one without a name is that of Debian: the one for nf_tables.
func (r *Initramfs) AddTools() error {
	for name := range programs {
		if err := r.AddProgram(name); err != nil {
			return err
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			r.cpio.link("usr/sbin/"+family+verb, "xtables-nft-multi")
			r.cpio.link("usr/sbin/"+family+"-nft"+verb, "xtables-nft-multi")
			r.cpio.link("usr/sbin/"+family+"-legacy"+verb, "xtables-legacy-multi")
		}
	}
	r.cpio.file("etc/protocols", 0o644, []byte("icmp 1\ntcp 6\nudp 17\nipv6-icmp 58\nsctp 132\n")) // nft prints the names
	extensions, err := filepath.Glob(filepath.Join(r.kernel.root, "usr/lib/*/xtables"))
	if err != nil || len(extensions) != 1 {
		return fmt.Errorf("package iptables has %d folders of extensions, want one", len(extensions))
	}
	libraries, err := filepath.Glob(filepath.Join(extensions[0], "*.so"))
	for _, l := range libraries {
		err = errors.Join(err, r.addLibraries(l))
	}
	return errors.Join(err, r.Add(strings.TrimPrefix(extensions[0], r.kernel.root+"/"), extensions[0]))
}

// AddProgram adds a program of programs, by its place there, with its loader and its libraries.
func (r *Initramfs) AddProgram(name string) error {
	from := filepath.Join(r.kernel.root, programs[name])
	if err := r.addLibraries(from); err != nil {
		return err
	}
	return r.Add(name, from)
}

func (r *Initramfs) addLibraries(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read the libraries of %s: %w", file, err)
	}
	if interpreter := f.Section(".interp"); interpreter != nil {
		loader, err := interpreter.Data()
		if err != nil {
			return fmt.Errorf("read the loader of %s: %w", file, err)
		}
		name := strings.Trim(string(loader), "/\x00")
		if err := r.Add(name, filepath.Join(r.kernel.root, name)); err != nil {
			return err
		}
	}
	for _, l := range libraries {
		found, err := filepath.Glob(filepath.Join(r.kernel.root, "lib/*", l))
		if err == nil && len(found) == 0 {
			found, err = filepath.Glob(filepath.Join(r.kernel.root, "usr/lib/*", l))
		}
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%s needs %s, which none of the packages has", file, l)
		}
		name := strings.TrimPrefix(found[0], r.kernel.root+"/")
		if r.cpio.seen[name] {
			continue
		}
		if err := r.Add(name, found[0]); err != nil {
			return err
		}
		if err := r.addLibraries(found[0]); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the file.
func (r *Initramfs) Close() error {
	r.cpio.entry(cpioTrailer, 0, 0, nil)
	return errors.Join(r.cpio.err, r.gzip.Close(), r.file.Close())
}
