package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exchange opens a raw socket of an IP protocol that is connected to the probe's
// target, sends a packet and reads until answer recognises one. An ICMP error counts if mine recognises
// the packet that it is about.
func (p Probe) exchange(ctx context.Context, protocol int, packet []byte, mine func([]byte) bool, answer func([]byte) (Result, bool)) Result {
	network := fmt.Sprintf("ip4:%d", protocol)
	if p.To.Addr().Is6() {
		network = fmt.Sprintf("ip6:%d", protocol)
	}
	dialer := net.Dialer{Control: hearErrors}
	if p.Source.IsValid() {
		dialer.LocalAddr = ipAddr(p.Source)
	}
	var conn *net.IPConn
	err := p.From.Do(func() error {
		c, err := dialer.DialContext(ctx, network, p.To.Addr().String())
		if err == nil {
			conn = c.(*net.IPConn)
		}
		return err
	})
	if err != nil {
		return failure(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })()
	conn.SetDeadline(time.Now().Add(p.timeout()))
	if _, err := conn.Write(packet); err != nil && !dropped(err) {
		return failure(err)
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFromIP(buf)
		if err == nil {
			if result, ok := answer(buf[:n]); ok {
				return result
			}
			continue
		}
		if result := failure(err); result.Kind != Refused && result.Kind != Unreachable {
			return result
		}
		// The kernel tells every raw socket with this target of the error.
		if err := errorAbout(conn, mine); err != nil {
			return failure(err)
		}
	}
}

// errorAbout empties a socket's error queue and returns the error about a packet that
// mine recognises; nil if there is none.
func errorAbout(conn *net.IPConn, mine func([]byte) bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var about error
	buf, control := make([]byte, 1500), make([]byte, 512)
	err = raw.Control(func(fd uintptr) {
		for {
			n, nControl, _, _, err := unix.Recvmsg(int(fd), buf, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return // EAGAIN: the queue is empty
			}
			messages, err := unix.ParseSocketControlMessage(control[:nControl])
			if err != nil || !mine(buf[:n]) {
				continue
			}
			for _, m := range messages {
				isError := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR ||
					m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
				if isError && len(m.Data) >= 4 {
					about = syscall.Errno(binary.NativeEndian.Uint32(m.Data)) // sock_extended_err.ee_errno
				}
			}
		}
	})
	return errors.Join(err, about)
}

func ipAddr(a netip.Addr) *net.IPAddr { return &net.IPAddr{IP: a.AsSlice(), Zone: a.Zone()} }

// The types of echo packets (RFC 792, RFC 4443).
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

func (p Probe) sendPing(ctx context.Context) Result {
	packet := make([]byte, 8)
	binary.BigEndian.PutUint16(packet[4:], sourcePort()) // the identifier
	protocol, reply := unix.IPPROTO_ICMP, byte(echoReply4)
	packet[0] = echoRequest4
	if p.To.Addr().Is6() {
		// The kernel fills in the checksum, which covers the addresses.
		protocol, reply, packet[0] = unix.IPPROTO_ICMPV6, echoReply6, echoRequest6
	} else {
		binary.BigEndian.PutUint16(packet[2:], internetChecksum(packet))
	}
	echo := func(in []byte, kind byte) bool {
		return len(in) >= 8 && in[0] == kind && [2]byte(in[4:6]) == [2]byte(packet[4:6])
	}
	mine := func(sent []byte) bool { return echo(sent, packet[0]) }
	return p.exchange(ctx, protocol, packet, mine, func(in []byte) (Result, bool) {
		return Result{Kind: Reached, Endpoint: "ping"}, echo(in, reply)
	})
}

// internetChecksum is RFC 1071's, for an even number of bytes.
func internetChecksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
