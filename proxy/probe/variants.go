package probe

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/proxy"
)

// Variant is one iptables: the programs that write through nf_tables, or those of the older interface.
type Variant struct {
	// Name is "iptables-nft" or "iptables-legacy".
	Name string
	// Restore and Save are the programs of each family; empty without one.
	Restore, Save map[proxy.Family]string
	// Version is what `iptables --version` says, without the variant.
	Version string
	// Plain: this is what the plain name "iptables" leads to.
	Plain bool
}

// programs are the first parts of the programs' names.
var programs = map[proxy.Family]string{proxy.IPv4: "iptables", proxy.IPv6: "ip6tables"}

// programTime bounds one run of an iptables program; it waits for the lock of the others for lockSeconds of it.
const (
	programTime = 10 * time.Second
	lockSeconds = "5"
)

// Variants finds the variants that are installed, the plain one first.
func Variants(ctx context.Context) []Variant {
	var all []Variant
	for _, suffix := range []string{"", "-nft", "-legacy"} {
		v, ok := variant(ctx, suffix)
		if !ok || len(all) > 0 && all[0].Name == v.Name {
			continue
		}
		all = append(all, v)
	}
	return all
}

// variant looks at the programs with a suffix behind the family's name.
func variant(ctx context.Context, suffix string) (Variant, bool) {
	v := Variant{Name: "iptables-legacy", Restore: map[proxy.Family]string{}, Save: map[proxy.Family]string{}, Plain: suffix == ""}
	for f, name := range programs {
		if path := look(name + suffix + "-restore"); path != "" {
			v.Restore[f] = path
		}
		if path := look(name + suffix + "-save"); path != "" {
			v.Save[f] = path
		}
	}
	main := look(programs[proxy.IPv4] + suffix)
	if main == "" || v.Restore[proxy.IPv4] == "" {
		return v, false
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, main, "--version").Output()
	if err != nil {
		return v, false
	}
	// "iptables v1.8.9 (nf_tables)", "iptables v1.8.9 (legacy)", "iptables v1.6.1"
	if strings.Contains(string(out), "nf_tables") {
		v.Name = "iptables-nft"
	}
	if fields := strings.Fields(string(out)); len(fields) > 1 {
		v.Version = strings.TrimPrefix(fields[1], "v")
	}
	return v, true
}

// k3sPrograms is where k3s keeps the iptables that it uses on machines without one.
const k3sPrograms = "/var/lib/rancher/k3s/data/current/bin/aux"

// List returns the rules of a family, as iptables-save prints them, in the network namespace of the calling
// thread; nothing where the family has no program.
func (v Variant) List(ctx context.Context, f proxy.Family) (string, error) {
	if v.Save[f] == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, v.Save[f])
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", v.Save[f], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// look finds a program, also where administrators' programs are when the PATH does not say so.
func look(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin", k3sPrograms} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}
