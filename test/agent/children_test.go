package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/rig"
)

// TestPrograms looks what programs that the agent runs are given: three descriptors and none of the agent's own, and
// nothing of the directory that the agent was started in.
func TestPrograms(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--proxy-mode", "iptables")
	seen := filepath.Join(c.T.TempDir(), "seen")
	c.programs(func(name string) string {
		return "(exec ls -l /proc/self/fd >>" + seen + "); exec " + strings.Replace(name, "tables", "tables-nft", 1) + ` "$@"`
	})
	// A program of the same name where the agent is started is none of it, whatever PATH says.
	here := t.TempDir()
	trap := filepath.Join(here, "trap")
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		if err := os.WriteFile(filepath.Join(here, name), []byte("#!/bin/sh\ntouch "+trap+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inherited := map[string]bool{}
	own, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range own {
		to, _ := os.Readlink(fd)
		inherited[to] = true
	}
	path := strings.TrimPrefix(c.Wrapper[1], "PATH=")
	c.Wrapper = []string{"env", "-C", here, "PATH=.::" + path}
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod2"))
	c.Run()
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
	c.write("web.yaml", service("web", "vip1", ports), endpoints("web", "pod3"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod3:8080")
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		before, to, found := strings.Cut(strings.TrimSpace(line), " -> ")
		fd := before[strings.LastIndex(before, " ")+1:]
		// ls has the directory open, and what started the tests may have left something open for all.
		if found && fd != "0" && fd != "1" && fd != "2" && !strings.HasPrefix(to, "/proc/") && !inherited[to] {
			t.Errorf("a program has descriptor %s: %s", fd, to)
		}
	}
	if _, err := os.Stat(trap); err == nil {
		t.Error("a program of the directory that the agent was started in was run")
	}
}
