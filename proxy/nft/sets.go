package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// TableName is the name of the table in both families.
const TableName = "sluice"

// nfproto is the family as nf_tables has it (enum in linux/netfilter.h).
func nfproto(f proxy.Family) byte {
	if f == proxy.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// setID is the place of a set in setDefs.
type setID uint8

// The sets and maps. "Frontend" in a key is address . protocol . port.
const (
	serviceIPs setID = iota
	endpoints
	localPolicyInside
	localPolicyOutside
	masquerade
	noEndpoints
	clusterIPs
	hairpin
	sourceLimited
	sourceRanges
	affinityIDs
	affinityLocalIDs
	affinityTimeouts
	affinity
	podSources
	setCount
)

// datatype is a type of a set's key or data: its number in nft (enum
// datatypes in nftables' datatype.h), which nft reads back to print elements,
// its length in bytes and its byte order there.
type datatype struct {
	id, length uint32
	bigEndian  bool
}

var (
	typeIPv4    = datatype{7, 4, true}
	typeIPv6    = datatype{8, 16, true}
	typeProto   = datatype{12, 1, true}
	typeService = datatype{13, 2, true}
	typeMark    = datatype{19, 4, false}
	typeClassID = datatype{23, 4, false}
)

// dataVerdict is the data type of a verdict map (NFT_DATA_VERDICT in linux/netfilter/nf_tables.h).
const dataVerdict = 0xffffff00

type setDef struct {
	name    string
	comment string
	key     []datatype
	data    []datatype // nil: a set, or a verdict map
	verdict bool
	counter bool
	ranges  bool // elements are ranges (NFT_SET_INTERVAL)
	dynamic bool // elements are added by packets and expire
}

// maxLearned bounds the kernel memory that clients can take by entries that packets
// add, at some 150 bytes each. When it is reached, new clients are spread without
// affinity until entries expire.
const maxLearned = 65536

// podSourceTimeout is how long, in seconds, an address counts as a pod's after its last
// new connection. It is refreshed by each one, before the connection's answer is looked at.
const podSourceTimeout = 3600

// setDefs returns the sets of a family's table, in the order of setID.
func setDefs(f proxy.Family) [setCount]setDef {
	addr := typeIPv4
	if f == proxy.IPv6 {
		addr = typeIPv6
	}
	frontend := []datatype{addr, typeProto, typeService}
	with := func(more ...datatype) []datatype { return append(frontend[:len(frontend):len(frontend)], more...) }
	return [setCount]setDef{
		serviceIPs: {name: "service-ips", key: frontend, verdict: true, counter: true,
			comment: "frontend : which pool serves it; counts new connections"},
		endpoints: {name: "endpoints", key: with(typeMark), data: []datatype{addr, typeService},
			comment: "frontend . slot : endpoint; slots from 0x100000 are endpoints of this node"},
		localPolicyInside: {name: "local-policy-inside", key: frontend, verdict: true,
			comment: "externalTrafficPolicy Local, clients that are pods or this node"},
		localPolicyOutside: {name: "local-policy-outside", key: frontend, verdict: true,
			comment: "externalTrafficPolicy Local, all other clients"},
		masquerade: {name: "masquerade", key: frontend, verdict: true,
			comment: "frontend : whose source address is replaced by this node's"},
		noEndpoints: {name: "no-endpoints", key: frontend, verdict: true,
			comment: "frontends without an endpoint : the answer"},
		clusterIPs: {name: "cluster-ips", key: []datatype{addr},
			comment: "live ClusterIPs: their other ports reject"},
		hairpin: {name: "hairpin", key: []datatype{addr, addr},
			comment: "endpoints of this node that may reach themselves"},
		sourceLimited: {name: "source-limited", key: frontend,
			comment: "frontends with loadBalancerSourceRanges"},
		sourceRanges: {name: "source-ranges", key: with(addr), ranges: true,
			comment: "frontend . source that may reach it"},
		affinityIDs: {name: "affinity-ids", key: frontend, data: []datatype{typeClassID},
			comment: "frontend : its pool's number in @affinity"},
		affinityLocalIDs: {name: "affinity-local-ids", key: frontend, data: []datatype{typeClassID},
			comment: "the same for the pool of this node's endpoints"},
		affinityTimeouts: {name: "affinity-timeouts", key: frontend, verdict: true,
			comment: "frontends with sessionAffinity ClientIP"},
		affinity: {name: "affinity", key: []datatype{typeClassID, addr}, data: []datatype{addr, typeService}, dynamic: true,
			comment: "pool . client : its endpoint, learned from connections"},
		podSources: {name: "pod-sources", key: []datatype{addr}, dynamic: true,
			comment: "what came in through the pods' interfaces, if that is how pods are told"},
	}
}

// padded is the length of a concatenation: every field fills whole 32-bit registers.
func padded(ts []datatype) uint32 {
	var n uint32
	for _, t := range ts {
		n += uint32(align4(int(t.length)))
	}
	return n
}

// length of a key or data: a single field is not padded.
func length(ts []datatype) uint32 {
	if len(ts) == 1 {
		return ts[0].length
	}
	return padded(ts)
}

// typeNumber packs the field types as nft does (6 bits each, TYPE_BITS in its datatype.h).
func typeNumber(ts []datatype) uint32 {
	var n uint32
	for _, t := range ts {
		n = n<<6 | t.id
	}
	return n
}

// NFT_SET_CONCAT, NFTA_SET_DESC_CONCAT and NFTA_SET_FIELD_LEN of linux/netfilter/nf_tables.h (kernel 5.6).
const (
	nftSetConcat      = 0x80
	nftaSetDescConcat = 2
	nftaSetFieldLen   = 1
	nftaSetExpr       = 0x11
	nftaSetUserdata   = unix.NFTA_SET_USERDATA
)

// flags returns the set's NFTA_SET_FLAGS.
func (d *setDef) flags() uint32 {
	var f uint32
	if d.verdict || d.data != nil {
		f |= unix.NFT_SET_MAP
	}
	if d.ranges {
		f |= unix.NFT_SET_INTERVAL | nftSetConcat
	}
	if d.dynamic {
		f |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return f
}

// create encodes the attributes of NFT_MSG_NEWSET.
func (d *setDef) create(s *stream, table string, id setID) {
	s.text(unix.NFTA_SET_TABLE, table)
	s.text(unix.NFTA_SET_NAME, d.name)
	s.be32(unix.NFTA_SET_ID, uint32(id)+1)
	s.be32(unix.NFTA_SET_FLAGS, d.flags())
	s.be32(unix.NFTA_SET_KEY_TYPE, typeNumber(d.key))
	s.be32(unix.NFTA_SET_KEY_LEN, length(d.key))
	switch {
	case d.verdict:
		s.be32(unix.NFTA_SET_DATA_TYPE, dataVerdict)
		s.be32(unix.NFTA_SET_DATA_LEN, 16) // sizeof(struct nft_verdict), which the kernel sets itself
	case d.data != nil:
		s.be32(unix.NFTA_SET_DATA_TYPE, typeNumber(d.data))
		s.be32(unix.NFTA_SET_DATA_LEN, length(d.data))
	}
	if d.ranges || d.dynamic {
		desc := s.nest(unix.NFTA_SET_DESC)
		if d.dynamic {
			s.be32(unix.NFTA_SET_DESC_SIZE, maxLearned)
		}
		if d.ranges {
			concat := s.nest(nftaSetDescConcat)
			for _, t := range d.key {
				field := s.nest(unix.NFTA_LIST_ELEM)
				s.be32(nftaSetFieldLen, t.length)
				s.endNest(field)
			}
			s.endNest(concat)
		}
		s.endNest(desc)
	}
	if d.counter {
		e := s.nest(nftaSetExpr)
		s.text(unix.NFTA_EXPR_NAME, "counter")
		s.endNest(s.nest(unix.NFTA_EXPR_DATA))
		s.endNest(e)
	}
	s.bytes(nftaSetUserdata, d.userdata())
}

// nameForElements encodes which set a message about elements is for.
func (d *setDef) nameForElements(s *stream, table string) {
	s.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	s.text(unix.NFTA_SET_ELEM_LIST_SET, d.name)
}

// inTable is nameForElements for a dump.
func (d *setDef) inTable(table string) func(*stream) {
	return func(s *stream) { d.nameForElements(s, table) }
}

// The types of a set's user data (enum nftnl_udata_set_types in libnftnl's udata.h).
const (
	udataSetKeyByteOrder  = 0
	udataSetDataByteOrder = 1
	udataSetComment       = 7
)

// userdata is what nft keeps beside a set to print it: byte orders (1 host,
// 2 big endian: enum byteorder in nftables' datatype.h) and the comment.
func (d *setDef) userdata() []byte {
	order := func(ts []datatype) uint32 {
		if len(ts) == 1 && !ts[0].bigEndian {
			return 1
		}
		return 2
	}
	b := []byte{udataSetKeyByteOrder, 4}
	b = binary.NativeEndian.AppendUint32(b, order(d.key))
	if d.data != nil {
		b = append(b, udataSetDataByteOrder, 4)
		b = binary.NativeEndian.AppendUint32(b, order(d.data))
	}
	return appendComment(b, udataSetComment, d.comment)
}

// commentMax is the length that nft takes (NFTNL_UDATA_COMMENT_MAXLEN in libnftnl's udata.h), with its NUL.
const commentMax = 128

// appendComment adds a comment in libnftnl's user data format: type, length, text with NUL.
func appendComment(b []byte, typ byte, text string) []byte {
	if len(text) > commentMax-1 {
		text = text[:commentMax-1]
	}
	b = append(b, typ, byte(len(text)+1))
	b = append(b, text...)
	return append(b, 0)
}
