package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Many kernels have no SCTP sockets, but every one with conntrack can translate
// SCTP's addresses. So the lab speaks just enough of it over raw sockets: an INIT chunk is
// the question, an INIT ACK the answer, whose state cookie holds the echo line (RFC 9260, section 3).
const (
	sctpHeader  = 12 // ports, verification tag, checksum
	sctpInit    = 20 // chunk header, initiate tag, window, streams, first TSN
	chunkInit   = 1
	chunkAck    = 2
	paramCookie = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket builds a packet with one INIT or INIT ACK chunk.
func sctpPacket(from, to uint16, tag uint32, chunk byte, cookie string) []byte {
	b := make([]byte, sctpHeader+sctpInit)
	binary.BigEndian.PutUint16(b[0:], from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint32(b[4:], tag)
	b[12] = chunk
	binary.BigEndian.PutUint32(b[16:], uint32(from)<<16|uint32(to)) // initiate tag: any number but 0
	binary.BigEndian.PutUint32(b[20:], 1<<16)                       // window
	binary.BigEndian.PutUint32(b[24:], 1<<16|1)                     // one stream each way
	if cookie != "" {
		b = binary.BigEndian.AppendUint16(b, paramCookie)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(cookie)))
		b = append(b, cookie...)
	}
	binary.BigEndian.PutUint16(b[14:], uint16(len(b)-sctpHeader))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// sctpParse returns the ports, the initiate tag and the cookie of a packet whose
// first chunk is of the given kind and whose checksum is right.
func sctpParse(b []byte, chunk byte) (from, to uint16, tag uint32, cookie string, ok bool) {
	if len(b) < sctpHeader+sctpInit || b[12] != chunk {
		return 0, 0, 0, "", false
	}
	plain := slices.Clone(b)
	clear(plain[8:12])
	if crc32.Checksum(plain, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, 0, 0, "", false
	}
	if param := b[sctpHeader+sctpInit:]; len(param) > 4 && binary.BigEndian.Uint16(param) == paramCookie {
		end := int(binary.BigEndian.Uint16(param[2:]))
		if end < 4 || end > len(param) {
			return 0, 0, 0, "", false
		}
		cookie = string(param[4:end])
	}
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[16:]), cookie, true
}

// serveSCTP answers INIT chunks at an address, on the given ports.
func (l *Lab) serveSCTP(ctx context.Context, h *Host, addr netip.Addr, ports []uint16) error {
	network := fmt.Sprintf("ip4:%d", unix.IPPROTO_SCTP)
	if addr.Is6() {
		network = fmt.Sprintf("ip6:%d", unix.IPPROTO_SCTP)
	}
	conn, err := net.ListenIP(network, ipAddr(addr))
	if err != nil {
		return fmt.Errorf("serve SCTP in %s: %w", h.name, err)
	}
	l.goServe(ctx, conn.Close, func() {
		buf := make([]byte, 1500)
		for ctx.Err() == nil {
			n, client, err := conn.ReadFromIP(buf)
			if err != nil {
				continue // an ICMP error about an earlier answer, or the end
			}
			from, to, tag, _, ok := sctpParse(buf[:n], chunkInit)
			if !ok || !slices.Contains(ports, to) {
				continue
			}
			clientAddr, _ := netip.AddrFromSlice(client.IP)
			conn.WriteToIP(sctpPacket(to, from, tag, chunkAck, echoLine(h, to, clientAddr)), client)
		}
	})
	return nil
}

func (p Probe) sendSCTP(ctx context.Context) Result {
	port := sourcePort()
	packet := sctpPacket(port, p.To.Port(), 0, chunkInit, "")
	mine := func(sent []byte) bool { return bytes.HasPrefix(sent, packet[:4]) } // the ports
	return p.exchange(ctx, unix.IPPROTO_SCTP, packet, mine, func(in []byte) (Result, bool) {
		from, to, _, cookie, ok := sctpParse(in, chunkAck)
		if !ok || from != p.To.Port() || to != port {
			return Result{}, false
		}
		return parseEcho(cookie), true
	})
}
