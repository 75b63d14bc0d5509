package conntrack

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Message types: enum cntl_msg_types, linux/netfilter/nfnetlink_conntrack.h.
const (
	msgGet         netfilter.MessageType = 1 // IPCTNL_MSG_CT_GET
	msgDelete      netfilter.MessageType = 2 // IPCTNL_MSG_CT_DELETE
	msgGetStatsCPU netfilter.MessageType = 4 // IPCTNL_MSG_CT_GET_STATS_CPU
)

// Attributes, from the same header. Their values are in network byte order,
// except for the flags of a filter.
const (
	// enum ctattr_type
	attrTupleOrig  = 1  // CTA_TUPLE_ORIG
	attrTupleReply = 2  // CTA_TUPLE_REPLY
	attrStatus     = 3  // CTA_STATUS
	attrProtoInfo  = 4  // CTA_PROTOINFO
	attrID         = 12 // CTA_ID
	attrZone       = 18 // CTA_ZONE
	attrFilter     = 25 // CTA_FILTER
	attrStatusMask = 26 // CTA_STATUS_MASK

	// enum ctattr_tuple
	attrTupleIP    = 1 // CTA_TUPLE_IP
	attrTupleProto = 2 // CTA_TUPLE_PROTO

	// enum ctattr_ip
	attrIPv4Src = 1 // CTA_IP_V4_SRC
	attrIPv4Dst = 2 // CTA_IP_V4_DST
	attrIPv6Src = 3 // CTA_IP_V6_SRC
	attrIPv6Dst = 4 // CTA_IP_V6_DST

	// enum ctattr_l4proto
	attrProtoNum     = 1 // CTA_PROTO_NUM
	attrProtoSrcPort = 2 // CTA_PROTO_SRC_PORT
	attrProtoDstPort = 3 // CTA_PROTO_DST_PORT

	// enum ctattr_protoinfo and ctattr_protoinfo_tcp
	attrProtoInfoTCP      = 1 // CTA_PROTOINFO_TCP
	attrProtoInfoTCPState = 1 // CTA_PROTOINFO_TCP_STATE

	// enum ctattr_filter
	attrFilterOrigFlags  = 1 // CTA_FILTER_ORIG_FLAGS
	attrFilterReplyFlags = 2 // CTA_FILTER_REPLY_FLAGS
)

const (
	nfgenmsgLen = 4      // struct nfgenmsg, linux/netfilter/nfnetlink.h
	nlaTypeMask = 0x3fff // NLA_TYPE_MASK, linux/netlink.h

	// filterProtoNum says that the tuple's protocol is to be compared:
	// CTA_FILTER_F_CTA_PROTO_NUM, net/netfilter/nf_internals.h.
	filterProtoNum = 1 << 3
	// statusSeenReply is IPS_SEEN_REPLY, linux/netfilter/nf_conntrack_common.h.
	statusSeenReply = 1 << 1
	// tcpSynSent is TCP_CONNTRACK_SYN_SENT, linux/netfilter/nf_conntrack_tcp.h.
	tcpSynSent = 1
)

// entry is one conntrack entry. The byte slices are the kernel's own
// attributes: handed back unread, they name the entry for deletion.
type entry struct {
	proxy.Flow
	tcpState uint8

	tupleOrig, id, zone []byte
}

// decode reads an entry from the payload of a netlink message. It allocates
// nothing, because a table may have hundreds of thousands of entries, and
// returns false for an entry of another shape, as those of ICMP.
func decode(payload []byte) (e entry, ok bool) {
	if len(payload) < nfgenmsgLen {
		return entry{}, false
	}
	var status uint32
	for typ, value := range attributes(payload[nfgenmsgLen:]) {
		switch typ {
		case attrTupleOrig:
			e.tupleOrig = value
			_, e.Dst, e.Protocol = decodeTuple(value)
		case attrTupleReply:
			e.ReplySrc, _, _ = decodeTuple(value)
		case attrStatus:
			status = uint32Of(value)
		case attrProtoInfo:
			e.tcpState = decodeTCPState(value)
		case attrID:
			e.id = value
		case attrZone:
			e.zone = value
		}
	}
	e.Unreplied = status&statusSeenReply == 0
	return e, e.Dst.IsValid() && e.ReplySrc.IsValid() && len(e.id) > 0
}

func decodeTuple(b []byte) (src, dst netip.AddrPort, protocol proxy.Protocol) {
	var srcAddr, dstAddr netip.Addr
	var srcPort, dstPort uint16
	for typ, value := range attributes(b) {
		switch typ {
		case attrTupleIP:
			for typ, value := range attributes(value) {
				switch typ {
				case attrIPv4Src, attrIPv6Src:
					srcAddr, _ = netip.AddrFromSlice(value)
				case attrIPv4Dst, attrIPv6Dst:
					dstAddr, _ = netip.AddrFromSlice(value)
				}
			}
		case attrTupleProto:
			for typ, value := range attributes(value) {
				switch typ {
				case attrProtoNum:
					protocol = proxy.Protocol(uint8Of(value))
				case attrProtoSrcPort:
					srcPort = uint16Of(value)
				case attrProtoDstPort:
					dstPort = uint16Of(value)
				}
			}
		}
	}
	return netip.AddrPortFrom(srcAddr, srcPort), netip.AddrPortFrom(dstAddr, dstPort), protocol
}

func decodeTCPState(protoInfo []byte) uint8 {
	for typ, value := range attributes(protoInfo) {
		if typ != attrProtoInfoTCP {
			continue
		}
		for typ, value := range attributes(value) {
			if typ == attrProtoInfoTCPState {
				return uint8Of(value)
			}
		}
	}
	return 0
}

// attributes walks over netlink attributes in place and ends at the first
// malformed one. (netlink.AttributeDecoder makes an object for every level of
// nesting, nine for each entry.)
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofNlAttr || length > len(b) {
				return
			}
			typ := binary.NativeEndian.Uint16(b[2:]) & nlaTypeMask
			if !yield(typ, b[unix.SizeofNlAttr:length]) {
				return
			}
			aligned := (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
			b = b[min(aligned, len(b)):]
		}
	}
}

func uint8Of(b []byte) uint8 {
	if len(b) != 1 {
		return 0
	}
	return b[0]
}

func uint16Of(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func uint32Of(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// dumpRequest asks for the entries of one family. With filter, kernels since
// 5.8 send only those of the protocol and, since 5.15, only the unreplied
// ones of TCP; older ones ignore what they do not know.
func dumpRequest(family proxy.Family, protocol proxy.Protocol, filter bool) (netlink.Message, error) {
	ae := netfilter.NewAttributeEncoder()
	if filter {
		if protocol == proxy.TCP {
			ae.Uint32(attrStatus, 0)
			ae.Uint32(attrStatusMask, statusSeenReply)
		}
		ae.Nested(attrTupleOrig, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(attrTupleProto, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(attrProtoNum, uint8(protocol))
				return nil
			})
			return nil
		})
		ae.Nested(attrFilter, func(ae *netlink.AttributeEncoder) error {
			ae.ByteOrder = binary.NativeEndian
			ae.Uint32(attrFilterOrigFlags, filterProtoNum)
			ae.Uint32(attrFilterReplyFlags, 0)
			return nil
		})
	}
	return request(msgGet, netlink.Dump, family, ae)
}

// deleteRequest names an entry by its tuple and ID, so that another entry that
// took the tuple over since then is left alone.
func deleteRequest(family proxy.Family, e entry) (netlink.Message, error) {
	ae := netfilter.NewAttributeEncoder()
	ae.Bytes(attrTupleOrig|netlink.Nested, e.tupleOrig)
	ae.Bytes(attrID, e.id)
	if len(e.zone) > 0 {
		ae.Bytes(attrZone, e.zone)
	}
	return request(msgDelete, netlink.Acknowledge, family, ae)
}

func request(typ netfilter.MessageType, flags netlink.HeaderFlags, family proxy.Family, ae *netlink.AttributeEncoder) (netlink.Message, error) {
	pf := netfilter.ProtoIPv4
	if family == proxy.IPv6 {
		pf = netfilter.ProtoIPv6
	}
	return netfilter.EncodeNetlink(netfilter.Header{
		SubsystemID: netfilter.NFSubsysCTNetlink,
		MessageType: typ,
		Family:      pf,
		Flags:       netlink.Request | flags,
	}, ae)
}
