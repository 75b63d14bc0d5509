package nft

import (
	"encoding/binary"
	"math"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct nlmsghdr (linux/netlink.h). Its fields are in host byte order, and BPF loads words as big endian.
const (
	lengthOffset = 0
	typeOffset   = 4
	portOffset   = 12
)

// The ends of a filter: what becomes of the datagram.
var (
	drop = bpf.RetConstant{Val: 0}
	pass = bpf.RetConstant{Val: math.MaxUint32}
)

// typeOf is a message's type (NFT_MSG_*) as BPF loads it.
func typeOf(message uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.NFNL_SUBSYS_NFTABLES<<8|message)))
}

// setFilter keeps from a socket what the filter drops.
func setFilter(nl *netlink.Conn, filter ...bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	return nl.SetBPF(raw)
}
