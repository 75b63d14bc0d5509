package probe

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The distributions whose packages are named.
const (
	RaspberryPiOS = "Raspberry Pi OS"
	Debian        = "Debian"
	Ubuntu        = "Ubuntu"
	Alpine        = "Alpine"
)

// Distributions lists them, in the order in which they are printed.
func Distributions() []string { return []string{RaspberryPiOS, Debian, Ubuntu, Alpine} }

// Host is what the remedies depend on.
type Host struct {
	// Distribution is one of Distributions, or empty for any other.
	Distribution string `json:"distribution,omitempty"`
	// Kernel is the running kernel's release, as `uname -r` prints it.
	Kernel string `json:"kernel"`
	// Modules tells whether the modules of the running kernel are on the disk. They are not when the
	// kernel was updated and the machine not started again since, which is common on Debian and
	// Raspberry Pi OS, nor when the kernel has none or this is a container.
	Modules bool `json:"modules"`
}

// ThisHost looks at this machine.
func ThisHost() Host { return hostAt("/") }

// hostAt looks at the files below root.
func hostAt(root string) Host {
	var u unix.Utsname
	h := Host{}
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	_, err := os.Stat(filepath.Join(root, "lib/modules", h.Kernel, "modules.dep"))
	h.Modules = err == nil
	if _, err := os.Stat(filepath.Join(root, "etc/rpi-issue")); err == nil {
		h.Distribution = RaspberryPiOS // its 64-bit os-release says Debian
		return h
	}
	f, err := os.Open(filepath.Join(root, "etc/os-release"))
	if err != nil {
		return h
	}
	defer f.Close()
	known := map[string]string{"raspbian": RaspberryPiOS, "debian": Debian, "ubuntu": Ubuntu, "alpine": Alpine}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "ID="); ok {
			h.Distribution = known[strings.Trim(id, `"'`)]
		}
	}
	return h
}
