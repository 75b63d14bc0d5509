package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/netns"
)

// The names of the variants.
const (
	NFT    = "iptables-nft"    // rules are in nf_tables
	Legacy = "iptables-legacy" // rules are in ip_tables and ip6_tables
)

// Variant is one of the two programs that are called iptables, for one family. Their rules do not know of each other.
type Variant struct {
	// Name is NFT or Legacy.
	Name string
	// Path, Restore and Save are the commands.
	Path, Restore, Save string
	// Version, like 1.8.9.
	Version string
	// Hint is true if the kubelet uses it: its hint is in the table mangle.
	Hint bool
	// Others is the number of chains of Kubernetes, CNI plugins and Docker, Ours that of sluice's.
	Others, Ours int
}

func (v Variant) String() string { return fmt.Sprintf("%s (%s %s)", v.Path, v.Name, v.Version) }

// ErrNoIPTables is returned where no iptables is installed.
var ErrNoIPTables = errors.New("no iptables command was found: install the package iptables")

// Command is the command of a family. Which variant it is, the system's administrator chose.
func Command(f proxy.Family) string {
	if f == proxy.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Variants returns the variants of a family that are installed, each once, the system's choice first.
func Variants(ctx context.Context, opts Options) ([]Variant, error) {
	if opts.Installed != nil {
		return slices.Clone(opts.Installed), nil
	}
	var list []Variant
	var errs []error
	base := Command(opts.Family)
	for _, name := range []string{base, base + "-nft", base + "-legacy"} {
		v, err := variant(ctx, opts.NetNS, name)
		if err != nil {
			if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		known := false
		for _, have := range list {
			known = known || have.Name == v.Name
		}
		if !known {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return nil, errors.Join(append(errs, fmt.Errorf("find %s: %w", base, ErrNoIPTables))...)
	}
	return list, nil
}

// moreDirs are searched behind PATH: where administrators' programs are, and where k3s keeps an iptables of its own.
var moreDirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/var/lib/rancher/k3s/data/current/bin/aux"}

func lookPath(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range moreDirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

func variant(ctx context.Context, ns int, name string) (v Variant, err error) {
	for _, c := range []struct {
		path *string
		name string
	}{{&v.Path, name}, {&v.Restore, name + "-restore"}, {&v.Save, name + "-save"}} {
		if *c.path, err = lookPath(c.name); err != nil {
			return v, err
		}
	}
	err = Run(ctx, ns, nil, func(r io.Reader) error {
		// iptables v1.8.9 (nf_tables); before 1.8 there was legacy alone and no word in brackets.
		line, err := bufio.NewReader(io.LimitReader(r, 200)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasPrefix(words[1], "v") {
			return fmt.Errorf("read the version of %s: %q is none", v.Path, line)
		}
		v.Version, v.Name = words[1][1:], Legacy
		if strings.Contains(line, "(nf_tables)") {
			v.Name = NFT
		}
		return nil
	}, v.Path, "--version")
	return v, err
}

// errAbsent says that the kernel has not the interface that a variant writes to, so that nothing can be in it.
var errAbsent = errors.New("the kernel has not this interface")

// look counts the chains that tell who uses a variant. Those in other tables are counted also if it returns an *IncompatibleError.
func (v *Variant) look(ctx context.Context, opts Options) error {
	v.Hint, v.Others, v.Ours = false, 0, 0
	err := v.List(ctx, opts.NetNS, "", Listing{Chain: func(name, _ []byte) {
		switch {
		case string(name) == "KUBE-IPTABLES-HINT", string(name) == "KUBE-KUBELET-CANARY":
			v.Hint = true
		case bytes.HasPrefix(name, prefixBytes):
			v.Ours++
		default:
			for _, other := range []string{"KUBE-", "CNI-", "FLANNEL-", "DOCKER"} {
				if bytes.HasPrefix(name, []byte(other)) {
					v.Others++
				}
			}
		}
	}})
	if err != nil && v.absent(opts) {
		return errAbsent
	}
	return err
}

// absent tells whether the kernel has not what the variant writes to.
func (v Variant) absent(opts Options) bool {
	if v.Name == Legacy {
		names := "/proc/thread-self/net/ip_tables_names"
		if opts.Family == proxy.IPv6 {
			names = "/proc/thread-self/net/ip6_tables_names"
		}
		err := netns.Do(opts.NetNS, func() error {
			_, err := os.Stat(names)
			return err
		})
		return errors.Is(err, fs.ErrNotExist)
	}
	s, err := openGeneration(opts.NetNS)
	if err != nil {
		return errors.Is(err, unix.EPROTONOSUPPORT)
	}
	defer s.close()
	_, err = s.read()
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) // nfnetlink has no such subsystem
}

// Detect chooses the variant that the machine uses: the one that the kubelet uses, else the one that
// other programs have chains in, else the system's choice. why is a sentence for the log; mixed is one
// about rules in both variants, empty if there are none.
func Detect(ctx context.Context, opts Options) (chosen Variant, why, mixed string, err error) {
	list, err := Variants(ctx, opts)
	if err != nil {
		return Variant{}, "", "", err
	}
	for i := range list {
		err := list[i].look(ctx, opts)
		if incompatible := (*IncompatibleError)(nil); err == nil || errors.As(err, &incompatible) {
			continue // the writer tells of the latter, if it is chosen
		}
		if absent := errors.Is(err, errAbsent); len(list) == 1 || i == 0 && !absent {
			// The system's choice may work in a moment; rules in the other one would be in nobody's sight.
			return Variant{}, "", "", fmt.Errorf("look which chains %s has: %w", list[i], err)
		} else if !absent {
			opts.logger().Warn("it is not known which chains an iptables has; it is not used", "iptables", list[i].String(), "error", err)
		}
		list[i].Hint, list[i].Others, list[i].Ours = false, -1, 0
	}
	chosen, why = choose(list)
	if len(list) == 2 && list[0].inUse() && list[1].inUse() {
		mixed = fmt.Sprintf("%v: there are rules in both variants of iptables: %d chains of other programs in %s, %d in %s; packets pass both. Choose one by update-alternatives --config %s, and reboot",
			opts.Family, list[0].Others, list[0].Name, list[1].Others, list[1].Name, Command(opts.Family))
	}
	return chosen, why, mixed, nil
}

func (v Variant) inUse() bool { return v.Hint || v.Others > 0 }

func choose(list []Variant) (Variant, string) {
	for _, v := range list {
		if v.Hint {
			return v, fmt.Sprintf("%s is used, as the kubelet does.", v)
		}
	}
	most := list[0]
	for _, v := range list[1:] {
		if v.Others > most.Others {
			most = v
		}
	}
	if most.Others > 0 {
		return most, fmt.Sprintf("%s is used, as other programs have %d chains there.", most, most.Others)
	}
	return most, fmt.Sprintf("%s is used, the system's choice.", most)
}
