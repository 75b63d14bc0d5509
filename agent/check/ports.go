package check

import (
	"bufio"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"sluice/proxy/socket"
)

// ports looks who listens at the ports of the agent.
func (l *looker) ports() []Item {
	var items []Item
	inodes, err := listening()
	for _, p := range []struct {
		name string
		at   netip.AddrPort
	}{{"healthz port", l.Config.HealthzBindAddress}, {"metrics port", l.Config.MetricsBindAddress}} {
		switch {
		case !p.at.IsValid():
		case err != nil:
			items = append(items, unseen(p.name, err))
		default:
			inode, used := inodes[p.at.Port()]
			by := ""
			if used {
				_, by = socket.Owner(inode)
			}
			items = append(items, judgePort(p.name, p.at.Port(), used, by, l.agentLives()))
		}
	}
	return items
}

// agentLives tells whether there is an agent's socket, which can be seen without the right to use it.
func (l *looker) agentLives() bool {
	info, err := os.Lstat(l.Config.Socket)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// judgePort is about a TCP port; by is the name of the program that listens there, empty if it cannot be seen. agent tells
// whether an agent seems to run.
func judgePort(name string, port uint16, used bool, by string, agent bool) Item {
	flag := strings.TrimSuffix(name, " port")
	remedy := fmt.Sprintf("end it, or set --%s-bind-address to another port", flag)
	switch {
	case !used:
		return ok(name, "%d is free", port)
	case by == "sluice":
		return ok(name, "%d is sluice's", port)
	case by == "" && agent:
		return ok(name, "%d is in use, most likely by the agent that runs: without root that cannot be seen", port)
	case by == "":
		return warn(name, remedy, "%d is in use, by a program that cannot be seen from here", port)
	case by == "kube-proxy" || strings.HasPrefix(by, "k3s"):
		return fail(name, "turn kube-proxy off (k3s: disable-kube-proxy: true on all servers), then: sluice cleanup --kube-proxy",
			"%d is in use by %s: a kube-proxy runs here", port, by)
	}
	return fail(name, remedy, "%d is in use by %s", port, by)
}

// listening returns the inodes of TCP sockets that listen in the network namespace of this thread, by port.
func listening() (map[uint16]string, error) {
	inodes := map[uint16]string{}
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/thread-self/net/" + name)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if port, inode, ok := parseListener(lines.Text()); ok {
				inodes[port] = inode
			}
		}
		f.Close()
	}
	return inodes, nil
}

// parseListener reads a line of /proc/net/tcp (get_tcp4_sock of net/ipv4/tcp_ipv4.c): the port is hexadecimal, the
// state 0A (TCP_LISTEN of net/tcp_states.h), and the inode the tenth field.
func parseListener(line string) (port uint16, inode string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != "0A" {
		return 0, "", false
	}
	_, hex, _ := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(hex, 16, 16)
	return uint16(n), fields[9], err == nil
}
