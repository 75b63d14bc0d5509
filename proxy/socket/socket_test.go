package socket

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestOwner(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	inode := strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")
	if pid, name := Owner(inode); pid != os.Getpid() || name != "socket.test" {
		t.Errorf("inode %s: pid %d, %q", inode, pid, name)
	}
	if pid, name := Owner("0"); pid != 0 || name != "" {
		t.Errorf("no socket: pid %d, %q", pid, name)
	}
}
