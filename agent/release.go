package agent

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// releaseTime is when the memory can be given back that a list of everything needs, or an answer about rules, if it came in
// now: rules and cache are written by then.
func (l *loop) releaseTime() time.Time {
	return time.Now().Add(l.cfg.CacheCommitInterval + time.Second)
}

// releaseMemory gives back what a list of everything needed, or a large object: it is not needed again.
func (l *loop) releaseMemory(now time.Time) {
	if l.release.IsZero() || now.Before(l.release) {
		return
	}
	l.release = time.Time{}
	l.store.ReleaseMemory()
	debug.FreeOSMemory()
	if err := releaseProgram(); err != nil {
		l.log.Debug("the program's own pages stay in memory", "error", err)
	}
}

// releaseProgram takes the pages of the program's own file out of the process: the
// start touched some 15 MB of code and tables, and what comes after it needs less than half of
// them. What is used again is mapped again from the page cache, or read from the file.
func releaseProgram() error {
	if fixed, err := isFixed("/proc/self/exe"); err != nil || !fixed {
		return err
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to uintptr
		var rights string
		if !strings.HasSuffix(lines.Text(), " "+exe) {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil {
			return err
		}
		if strings.Contains(rights, "w") {
			continue // variables: the file has only their first values
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return lines.Err()
}

// isFixed tells whether a program is linked for fixed addresses, as Go does by default (e_type is ET_EXEC, elf(5)). In one
// that is not, tables that only the dynamic linker wrote are in pages that look like the file's.
func isFixed(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, 18) // e_ident, and e_type in the machine's byte order
	if _, err := io.ReadFull(file, head); err != nil {
		return false, err
	}
	return binary.NativeEndian.Uint16(head[16:]) == 2, nil
}
