package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"sluice/test/procfs"
)

// memory is a process's, in bytes.
type memory struct{ rss, anonymous, peak int64 }

func readMemory(pid int) (memory, error) {
	m, err := procfs.Memory(pid)
	return memory{rss: m["VmRSS"], anonymous: m["RssAnon"], peak: m["VmHWM"]}, err
}

// clockTick is the unit of the times in /proc/PID/stat; it is 1/100 s on every Linux architecture that Go knows.
const clockTick = 10 * time.Millisecond

// readCPU returns the time that a process used, with that of its children that have ended: kube-proxy runs nft.
func readCPU(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(content), ") ") // behind the command's name
	fields := strings.Fields(rest)
	const utime, cstime = 11, 14 // the 14th to the 17th field of proc(5), less three
	if len(fields) <= cstime {
		return 0, fmt.Errorf("read /proc/%d/stat: %q is too short", pid, content)
	}
	var ticks int64
	for _, f := range fields[utime : cstime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
