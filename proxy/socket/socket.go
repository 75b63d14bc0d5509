// Package socket finds the processes that have sockets open.
package socket

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Owner finds a process that has the socket with an inode open, and the name of its program. Without the right to
// see it, which root has, it is 0.
func Owner(inode string) (pid int, name string) {
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, d := range descriptors {
		if target, err := os.Readlink(d); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		dir := filepath.Dir(filepath.Dir(d))
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		pid, _ = strconv.Atoi(filepath.Base(dir))
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}
