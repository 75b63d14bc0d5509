// Package procfs reads what the kernel tells of a process.
package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
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

// Tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all machines that Go is for.
const Tick = 10 * time.Millisecond

// CPU returns how much time of a processor a process has taken, and those of its children that have ended, in ticks of 10 ms.
func CPU(pid int) (own, children time.Duration, err error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(content), ") ") // the program's name is between parentheses
	fields := strings.Fields(rest)                   // from the third on; see proc_pid_stat(5)
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("read %s: it has %d fields", path, len(fields))
	}
	for i, f := range fields[11:15] { // utime, stime, cutime and cstime
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read %s: %w", path, err)
		}
		if i < 2 {
			own += time.Duration(ticks) * Tick
		} else {
			children += time.Duration(ticks) * Tick
		}
	}
	return own, children, nil
}
