package procfs_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice/test/procfs"
)

func TestMemory(t *testing.T) {
	m, err := procfs.Memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if sum := m["RssAnon"] + m["RssFile"] + m["RssShmem"]; m["VmRSS"] < 1<<20 || m["VmRSS"] != sum || m["VmHWM"] < m["VmRSS"] {
		t.Errorf("VmRSS is %d, its parts are %d, VmHWM is %d", m["VmRSS"], sum, m["VmHWM"])
	}
	if n, ok := m["Threads"]; ok {
		t.Errorf("Threads: %d is taken for an amount of memory", n)
	}
}

func TestNoProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := procfs.Memory(cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "/status") {
		t.Errorf("the error of a process that has ended is %v", err)
	}
}
