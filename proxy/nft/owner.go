package nft

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/proxy/netns"
	"sluice/proxy/socket"
)

// describePort names the program that has a netlink port: "sluice (pid 412)", or the port alone where that cannot be seen.
func describePort(ns int, port uint32) string {
	text := fmt.Sprintf("netlink port %d", port)
	inode := ""
	err := netns.Do(ns, func() error {
		f, err := os.Open("/proc/thread-self/net/netlink")
		if err != nil {
			return err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if p, i, ok := parseNetlink(lines.Text()); ok && p == port {
				inode = i
			}
		}
		return nil
	})
	if err != nil || inode == "" {
		return text
	}
	if pid, name := socket.Owner(inode); pid != 0 {
		return fmt.Sprintf("%s (pid %d)", name, pid)
	}
	return text
}

// parseNetlink reads a line of /proc/net/netlink (netlink_native_seq_show of net/netlink/af_netlink.c): the second
// field is the protocol, the third the port, the last the inode.
func parseNetlink(line string) (port uint32, inode string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[1] != strconv.Itoa(unix.NETLINK_NETFILTER) {
		return 0, "", false
	}
	n, err := strconv.ParseUint(fields[2], 10, 32)
	return uint32(n), fields[len(fields)-1], err == nil
}
