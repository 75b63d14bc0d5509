// Package procfs reads what the kernel tells of a process.
package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory returns the amounts in /proc/PID/status in bytes, by their names there, such
// as VmRSS and RssAnon; see proc_pid_status(5).
func Memory(pid int) (map[string]int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	amounts := map[string]int64{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		number, isAmount := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if !isAmount {
			continue
		}
		kib, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		amounts[name] = kib << 10
	}
	return amounts, nil
}
