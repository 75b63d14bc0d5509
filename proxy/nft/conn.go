package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// conn is a netlink socket to nf_tables. The kernel works on a request while it
// is being sent, so that all replies to a batch are there when send returns.
type conn struct {
	nl  *netlink.Conn
	raw syscall.RawConn
	seq uint32
	in  []byte // receive buffer
	// sendLimit is the largest batch in bytes that the socket takes.
	sendLimit int
}

const (
	receiveBuffer = 1 << 20 // room for the errors of a batch that fails in many places
	// dumpBuffer is what one recv takes; the kernel fills up to 32 KiB of it (NLMSG_GOODSIZE in af_netlink.c).
	dumpBuffer = 64 << 10
	// wantedSend holds the largest transaction seen in practice (a Service with 10,000 endpoints) many times over.
	wantedSend = 32 << 20
)

// dial opens a connection in the network namespace of the file descriptor
// netns, or of the calling thread if that is 0.
func dial(netns int) (*conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket to netfilter: %w", err)
	}
	c := &conn{nl: nl}
	if c.raw, err = nl.SyscallConn(); err != nil {
		nl.Close()
		return nil, err
	}
	// Errors without the request echoed back, with the kernel's own words.
	_ = nl.SetOption(netlink.CapAcknowledge, true)
	_ = nl.SetOption(netlink.ExtendedAcknowledge, true)
	_ = nl.SetReadBuffer(receiveBuffer)
	_ = nl.SetWriteBuffer(wantedSend)
	got, err := nl.WriteBuffer()
	if err != nil {
		nl.Close()
		return nil, fmt.Errorf("read the netlink socket's buffer size: %w", err)
	}
	c.sendLimit = got - 4096 // netlink_sendmsg keeps some for itself
	return c, nil
}

func (c *conn) Close() error { return c.nl.Close() }

// portID is the address of this socket, by which the kernel names a table's owner.
func (c *conn) portID() uint32 { return c.nl.PID() }

func (c *conn) send(parts [][]byte) error {
	var err error
	cerr := c.raw.Control(func(fd uintptr) {
		_, err = unix.SendmsgBuffers(int(fd), parts, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0)
	})
	return errors.Join(cerr, err)
}

// receive returns the next messages that wait, as one buffer that is valid until the next call. It does not block.
func (c *conn) receive() ([]byte, error) {
	if c.in == nil {
		c.in = make([]byte, dumpBuffer)
	}
	var n int
	var err error
	cerr := c.raw.Control(func(fd uintptr) {
		for {
			n, _, err = unix.Recvfrom(int(fd), c.in, unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return c.in[:n], nil
}

// drain throws away whatever waits, so that replies to an earlier request are not taken for this one's.
func (c *conn) drain() {
	for {
		if _, err := c.receive(); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// message is one netlink message: the type's lower byte (NFT_MSG_*), the flags and the attributes.
type message struct {
	typ   uint16
	flags uint16
	seq   uint32
	port  uint32
	body  []byte // behind struct nlmsghdr
}

// attrs returns what follows struct nfgenmsg.
func (m message) attrs() []byte {
	if len(m.body) < nfgenmsgLen {
		return nil
	}
	return m.body[nfgenmsgLen:]
}

// eachMessage calls fn for every message in b until fn says stop.
func eachMessage(b []byte, fn func(message) (stop bool, err error)) error {
	for len(b) >= nlmsghdrLen {
		n := int(binary.NativeEndian.Uint32(b))
		if n < nlmsghdrLen || n > len(b) {
			return fmt.Errorf("the kernel sent a netlink message of %d bytes in %d", n, len(b))
		}
		stop, err := fn(message{
			typ:   binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			port:  binary.NativeEndian.Uint32(b[12:]),
			body:  b[nlmsghdrLen:n],
		})
		if stop || err != nil {
			return err
		}
		b = b[min(align4(n), len(b)):]
	}
	return nil
}

// kernelError is an error that nf_tables answered, with its own words where it has some (extended ACK).
type kernelError struct {
	errno syscall.Errno
	text  string
}

func (e *kernelError) Error() string {
	if e.text == "" {
		return e.errno.Error()
	}
	return e.errno.Error() + ": " + e.text
}

func (e *kernelError) Unwrap() error { return e.errno }

// ackError reads an NLMSG_ERROR message; nil is an acknowledgement.
func ackError(m message) error {
	if len(m.body) < 4 {
		return errors.New("the kernel sent a netlink error without a number")
	}
	code := int32(binary.NativeEndian.Uint32(m.body))
	if code == 0 {
		return nil
	}
	e := &kernelError{errno: syscall.Errno(-code)}
	if m.flags&unix.NLM_F_ACK_TLVS != 0 && m.flags&unix.NLM_F_CAPPED != 0 && len(m.body) >= 4+nlmsghdrLen {
		eachAttr(m.body[4+nlmsghdrLen:], func(typ uint16, v []byte) {
			if typ == unix.NLMSGERR_ATTR_MSG {
				e.text = cString(v)
			}
		})
	}
	return e
}

// dump asks for all objects of a kind and calls fn for each one's attributes.
// A dump that a change interrupted is begun anew; fn is told by a call of restart.
func (c *conn) dump(family byte, typ uint8, filter func(*stream), restart func(), fn func(attrs []byte)) error {
	const attempts = 20
	for range attempts {
		restart()
		again, err := c.dumpOnce(family, typ, filter, fn)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("read nf_tables back: %d attempts in a row were interrupted by changes", attempts)
}

func (c *conn) dumpOnce(family byte, typ uint8, filter func(*stream), fn func(attrs []byte)) (again bool, err error) {
	c.drain()
	var s stream
	c.seq++
	seq := c.seq
	s.begin(uint16(unix.NFNL_SUBSYS_NFTABLES)<<8|uint16(typ), unix.NLM_F_REQUEST|unix.NLM_F_DUMP, seq, family, 0)
	if filter != nil {
		filter(&s)
	}
	s.end()
	if err := c.send([][]byte{s.buf}); err != nil {
		return false, err
	}
	for done := false; !done; {
		b, err := c.receive()
		if errors.Is(err, unix.ENOBUFS) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		err = eachMessage(b, func(m message) (bool, error) {
			if m.seq != seq {
				return false, nil
			}
			again = again || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch m.typ {
			case unix.NLMSG_DONE:
				done = true
				if len(m.body) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(m.body)); code < 0 {
						return true, &kernelError{errno: syscall.Errno(-code)}
					}
				}
				return true, nil
			case unix.NLMSG_ERROR:
				done = true
				return true, ackError(m)
			}
			fn(m.attrs())
			return false, nil
		})
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return again, nil
}
