package rig

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

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
func (p *Process) Threads() int { return p.count("task") }

// Files counts the agent's open file descriptors.
func (p *Process) Files() int { return p.count("fd") }

// count counts the entries of a directory in /proc/PID.
func (p *Process) count(dir string) int {
	p.T.Helper()
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.Cmd.Process.Pid), dir))
	if err != nil {
		p.T.Fatal(err)
	}
	return len(list)
}

// CPU is how much time of a processor the agent has taken.
func (p *Process) CPU() time.Duration {
	p.T.Helper()
	cpu, _, err := procfs.CPU(p.Cmd.Process.Pid)
	if err != nil {
		p.T.Fatal(err)
	}
	return cpu
}
