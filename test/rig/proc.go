package rig

import (
	"os"
	"path/filepath"
	"strconv"

	"sluice/test/procfs"
)

// Memory reads a line of the agent's /proc/PID/status in bytes.
func (p *Process) Memory(line string) int64 {
	p.T.Helper()
	m, err := procfs.Memory(p.Cmd.Process.Pid)
	if err != nil {
		p.T.Fatal(err)
	}
	n, ok := m[line]
	if !ok {
		p.T.Fatalf("/proc/PID/status has no line %s", line)
	}
	return n
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
