// Package conntrack deletes entries of the kernel's connection tracking table
// whose Service would send them elsewhere today. It reads the table as a
// stream: what it holds in memory does not grow with the table.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

const (
	// dumpBuffer is the size of a datagram in which the kernel sends entries. It
	// follows the reader's buffer up to 32 KiB (netlink_recvmsg); 16 KiB holds some 70 entries.
	dumpBuffer = 16 << 10
	// replyBuffer holds the answer to a deletion: an error number and our own request again.
	replyBuffer = 1 << 10
	// attempts bounds how often a dump that the kernel broke off is begun anew.
	attempts = 3
)

// UnsupportedError says that the kernel gives no access to its table.
type UnsupportedError struct{ Err error }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("kernel has no netlink access to connection tracking (%v): load the module with 'modprobe nf_conntrack_netlink', or use a kernel built with CONFIG_NF_CT_NETLINK", e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }

// Options for Open.
type Options struct {
	// NetNS is the file descriptor of the network namespace to work in; it may be
	// closed after Open. 0 is the namespace of the thread that calls.
	NetNS int
}

// Conn deletes entries in one network namespace. It has no sockets between
// calls. It is not safe for concurrent use.
type Conn struct {
	netNS int
	// unfiltered is set once the kernel has refused a filter.
	unfiltered bool
}

// Open checks that the kernel lets its table be read. It returns an
// *UnsupportedError if it was built or started without that.
func Open(o Options) (*Conn, error) {
	c := &Conn{}
	if o.NetNS != 0 {
		fd, err := unix.FcntlInt(uintptr(o.NetNS), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open connection tracking: keep network namespace: %w", err)
		}
		c.netNS = fd
	}
	if err := c.probe(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// probe asks for something short: the counters of each CPU.
func (c *Conn) probe() error {
	conn, err := c.dial(dumpBuffer)
	if err != nil {
		return openError(err)
	}
	defer conn.Close()
	req, err := request(msgGetStatsCPU, netlink.Dump, proxy.IPv4, netlink.NewAttributeEncoder())
	if err != nil {
		return fmt.Errorf("encode conntrack request: %w", err)
	}
	if _, err := conn.Execute(req); err != nil {
		return openError(err)
	}
	return nil
}

// openError tells a kernel without netfilter netlink sockets (EPROTONOSUPPORT)
// or without the conntrack part of them (EINVAL, from nfnetlink_rcv_msg) from other faults.
func openError(err error) error {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL):
		return &UnsupportedError{Err: err}
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("open connection tracking: %w: run as root or with CAP_NET_ADMIN", err)
	}
	return fmt.Errorf("open connection tracking: %w", err)
}

// Close ends c. It must not be used any more.
func (c *Conn) Close() error {
	if c.netNS == 0 {
		return nil
	}
	return unix.Close(c.netNS)
}

// DeleteStale hands the entries of one family to stale and deletes those for
// which it returns true. Only such entries are handed over whose loss no
// connection can notice: those of UDP, and those of TCP whose first packet was
// never answered (SYN_SENT). An entry may be handed over more than once.
//
// It returns the number of deleted entries, also beside an error. An entry that
// vanishes by itself, or gives way to a new one with the same addresses and
// ports, is neither an error nor counted.
func (c *Conn) DeleteStale(ctx context.Context, family proxy.Family, stale func(proxy.Flow) bool) (deleted int, err error) {
	del, err := c.dial(replyBuffer)
	if err != nil {
		return 0, fmt.Errorf("open netlink socket to delete %s conntrack entries: %w", family, err)
	}
	defer del.Close()

	for _, protocol := range [...]proxy.Protocol{proxy.UDP, proxy.TCP} {
		n, err := c.deleteProtocol(ctx, del, family, protocol, stale)
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

func (c *Conn) deleteProtocol(ctx context.Context, del *netlink.Conn, family proxy.Family, protocol proxy.Protocol, stale func(proxy.Flow) bool) (deleted int, err error) {
	visit := func(e entry) error {
		if ctx.Err() != nil || !stale(e.Flow) {
			return ctx.Err()
		}
		gone, err := remove(del, family, e)
		if gone {
			deleted++
		}
		return err
	}
	for range attempts {
		err = c.dump(ctx, family, protocol, visit)
		if !errors.Is(err, errInterrupted) {
			return deleted, err
		}
	}
	return deleted, fmt.Errorf("give up after %d attempts: %w", attempts, err)
}

var (
	// errInterrupted says that a dump is not whole and is worth another attempt.
	errInterrupted = errors.New("kernel broke the listing off")
	// errRefused says that the kernel does not take the request, perhaps because of its filter.
	errRefused = errors.New("kernel refuses the request")
)

// dump calls visit for each entry of a protocol that may be deleted. It uses a
// socket of its own, so that visit can delete while the listing goes on: the
// kernel allows that, and then only repeats some entries.
func (c *Conn) dump(ctx context.Context, family proxy.Family, protocol proxy.Protocol, visit func(entry) error) error {
	conn, err := c.dial(dumpBuffer)
	if err != nil {
		return fmt.Errorf("open netlink socket to list %s conntrack entries: %w", family, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	err = c.dumpOn(conn, family, protocol, visit)
	if errors.Is(err, errRefused) && !c.unfiltered {
		c.unfiltered = true
		err = c.dumpOn(conn, family, protocol, visit)
	}
	if ctx.Err() != nil {
		return ctx.Err() // and not the timeout by which it ended the dump
	}
	return err
}

func (c *Conn) dumpOn(conn *netlink.Conn, family proxy.Family, protocol proxy.Protocol, visit func(entry) error) error {
	req, err := dumpRequest(family, protocol, !c.unfiltered)
	if err != nil {
		return fmt.Errorf("encode conntrack request: %w", err)
	}
	if _, err := conn.Send(req); err != nil {
		return fmt.Errorf("list %s %s conntrack entries: %w", family, protocol, err)
	}
	interrupted := false
	for msg, err := range conn.ReceiveIter() {
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("list %s %s conntrack entries: %w: %w", family, protocol, errInterrupted, err)
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("list %s %s conntrack entries: %w: %w", family, protocol, errRefused, err)
		case err != nil:
			return fmt.Errorf("list %s %s conntrack entries: %w", family, protocol, err)
		}
		interrupted = interrupted || msg.Header.Flags&netlink.DumpInterrupted != 0
		e, ok := decode(msg.Data)
		if !ok || !expendable(e, protocol) {
			continue
		}
		if err := visit(e); err != nil {
			return err
		}
	}
	if interrupted {
		return fmt.Errorf("list %s %s conntrack entries: %w", family, protocol, errInterrupted)
	}
	return nil
}

// expendable tells whether an entry may be deleted at all. The kernel's filter
// says the same where there is one.
func expendable(e entry, protocol proxy.Protocol) bool {
	if e.Protocol != protocol {
		return false
	}
	return protocol == proxy.UDP || e.Unreplied && e.tcpState == tcpSynSent
}

// remove deletes an entry and tells whether it was still there.
func remove(conn *netlink.Conn, family proxy.Family, e entry) (bool, error) {
	req, err := deleteRequest(family, e)
	if err != nil {
		return false, fmt.Errorf("encode conntrack request: %w", err)
	}
	_, err = conn.Execute(req)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete conntrack entry %s %s -> %s: %w", e.Protocol, e.Dst, e.ReplySrc, err)
	}
	return true, nil
}

func (c *Conn) dial(buffer int) (*netlink.Conn, error) {
	return netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: c.netNS, MessageBufferSize: buffer})
}
