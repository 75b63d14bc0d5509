package nft

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	nlmsghdrLen = 16 // struct nlmsghdr, linux/netlink.h
	nfgenmsgLen = 4  // struct nfgenmsg, linux/netfilter/nfnetlink.h
	nlattrLen   = 4  // struct nlattr, linux/netlink.h
)

func align4(n int) int { return (n + 3) &^ 3 }

// stream encodes netlink messages one behind the other into one buffer, which is reused.
type stream struct {
	buf   []byte
	start int // of the open message
}

// begin opens a message. resID is nfgenmsg's res_id, in host byte order.
func (s *stream) begin(typ, flags uint16, seq uint32, family byte, resID uint16) {
	s.start = len(s.buf)
	b := binary.NativeEndian.AppendUint32(s.buf, 0)
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, 0) // version NFNETLINK_V0
	s.buf = binary.BigEndian.AppendUint16(b, resID)
}

// end closes the open message.
func (s *stream) end() {
	binary.NativeEndian.PutUint32(s.buf[s.start:], uint32(len(s.buf)-s.start))
}

// nest opens a nested attribute and returns its place for endNest.
func (s *stream) nest(typ uint16) int {
	at := len(s.buf)
	s.header(0, typ|unix.NLA_F_NESTED)
	return at
}

func (s *stream) endNest(at int) {
	binary.NativeEndian.PutUint16(s.buf[at:], uint16(len(s.buf)-at))
}

func (s *stream) header(n int, typ uint16) {
	s.buf = binary.NativeEndian.AppendUint16(s.buf, uint16(nlattrLen+n))
	s.buf = binary.NativeEndian.AppendUint16(s.buf, typ)
}

func (s *stream) pad() {
	for len(s.buf)&3 != 0 {
		s.buf = append(s.buf, 0)
	}
}

func (s *stream) bytes(typ uint16, v []byte) {
	s.header(len(v), typ)
	s.buf = append(s.buf, v...)
	s.pad()
}

// text adds a NUL-terminated string.
func (s *stream) text(typ uint16, v string) {
	s.header(len(v)+1, typ)
	s.buf = append(s.buf, v...)
	s.buf = append(s.buf, 0)
	s.pad()
}

// be32 adds a number in network byte order, as nf_tables has nearly all of its numbers.
func (s *stream) be32(typ uint16, v uint32) {
	s.header(4, typ)
	s.buf = binary.BigEndian.AppendUint32(s.buf, v)
}

// be64 is be32 for 64 bits.
func (s *stream) be64(typ uint16, v uint64) {
	s.header(8, typ)
	s.buf = binary.BigEndian.AppendUint64(s.buf, v)
}

// eachAttr calls fn for every attribute in b; the flags are taken off the type.
func eachAttr(b []byte, fn func(typ uint16, value []byte)) {
	for len(b) >= nlattrLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < nlattrLen || n > len(b) {
			return
		}
		fn(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[nlattrLen:n])
		b = b[min(align4(n), len(b)):]
	}
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
