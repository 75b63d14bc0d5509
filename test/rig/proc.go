package rig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory reads a line of the agent's /proc/PID/status in bytes.
func (p *Process) Memory(line string) int64 {
	p.T.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Cmd.Process.Pid), "status"))
	if err != nil {
		p.T.Fatal(err)
	}
	for l := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				p.T.Fatal(err)
			}
			return kb << 10
		}
	}
	p.T.Fatalf("/proc/PID/status has no line %s", line)
	return 0
}

// Threads counts the threads of the agent.
func (p *Process) Threads() int {
	p.T.Helper()
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.Cmd.Process.Pid), "task"))
	if err != nil {
		p.T.Fatal(err)
	}
	return len(list)
}
