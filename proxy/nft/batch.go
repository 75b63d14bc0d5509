package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// batch collects what one transaction is to do. The order in which it is sent
// is always right for the kernel: what goes leaves before what comes takes its
// place, and a chain exists while anything leads to it.
type batch struct {
	family proxy.Family
	table  string // the name of the table that sets, chains and rules are in
	defs   [setCount]setDef
	seq    *uint32

	first stream // tables, sets, chains and rules that come
	del   [setCount]stream
	add   [setCount]stream
	last  stream // chains and tables that go
	ops   map[uint32]string
	stats proxy.Stats
	// removed counts the removals from each set.
	removed [setCount]int
	// open is the place of the list in the message that is open in del and add; 0 if none is.
	openDel, openAdd [setCount]int
}

// elementLimit closes an element message: its list is one attribute, which holds 64 KiB at most.
const elementLimit = 56 << 10

func newBatch(f proxy.Family, seq *uint32) *batch {
	return &batch{family: f, table: TableName, defs: setDefs(f), seq: seq, ops: map[uint32]string{}}
}

// reset forgets everything but keeps the buffers.
func (b *batch) reset() {
	for _, s := range b.streams() {
		s.buf = s.buf[:0]
	}
	clear(b.ops)
	b.openDel, b.openAdd = [setCount]int{}, [setCount]int{}
	b.stats, b.removed = proxy.Stats{}, [setCount]int{}
}

func (b *batch) streams() []*stream {
	all := []*stream{&b.first}
	for i := range b.del {
		all = append(all, &b.del[i])
	}
	for i := range b.add {
		all = append(all, &b.add[i])
	}
	return append(all, &b.last)
}

// size is the number of bytes collected.
func (b *batch) size() int {
	n := 0
	for _, s := range b.streams() {
		n += len(s.buf)
	}
	return n
}

// message opens a request in s and notes what it is for, for errors.
func (b *batch) message(s *stream, typ int, flags uint16, what string) {
	*b.seq++
	b.ops[*b.seq] = what
	s.begin(uint16(unix.NFNL_SUBSYS_NFTABLES)<<8|uint16(typ), unix.NLM_F_REQUEST|flags, *b.seq, nfproto(b.family), 0)
}

func (b *batch) newTable(name string, flags uint32) {
	b.message(&b.first, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "create table "+name)
	b.first.text(unix.NFTA_TABLE_NAME, name)
	b.first.be32(unix.NFTA_TABLE_FLAGS, flags)
	b.first.bytes(nftaTableUserdata, appendComment(nil, udataComment, tableComment))
	b.first.end()
}

func (b *batch) deleteTable(name string) {
	b.message(&b.first, unix.NFT_MSG_DELTABLE, 0, "delete table "+name)
	b.first.text(unix.NFTA_TABLE_NAME, name)
	b.first.end()
}

func (b *batch) newSet(id setID) {
	d := &b.defs[id]
	b.message(&b.first, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, "create set "+d.name)
	d.create(&b.first, b.table, id)
	b.first.end()
}

// emptySet removes all elements of a set.
func (b *batch) emptySet(id setID) {
	b.message(&b.first, unix.NFT_MSG_DELSETELEM, 0, "empty set "+b.defs[id].name)
	b.defs[id].nameForElements(&b.first, b.table)
	b.first.end()
}

func (b *batch) deleteSet(id setID) {
	b.message(&b.first, unix.NFT_MSG_DELSET, 0, "delete set "+b.defs[id].name)
	b.first.text(unix.NFTA_SET_TABLE, b.table)
	b.first.text(unix.NFTA_SET_NAME, b.defs[id].name)
	b.first.end()
}

// dropElements forgets what was to be added to a set and removed from it.
func (b *batch) dropElements(id setID) {
	b.del[id].buf, b.openDel[id] = b.del[id].buf[:0], 0
	b.add[id].buf, b.openAdd[id] = b.add[id].buf[:0], 0
	b.removed[id] = 0
}

// newChain creates a chain or leaves it as it is.
func (b *batch) newChain(name string, h *hook) {
	s := &b.first
	b.message(s, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, "create chain "+name)
	s.text(unix.NFTA_CHAIN_TABLE, b.table)
	s.text(unix.NFTA_CHAIN_NAME, name)
	if h != nil {
		n := s.nest(unix.NFTA_CHAIN_HOOK)
		s.be32(unix.NFTA_HOOK_HOOKNUM, h.num)
		s.be32(unix.NFTA_HOOK_PRIORITY, uint32(h.priority))
		s.endNest(n)
		s.be32(unix.NFTA_CHAIN_POLICY, nfAccept)
		s.text(unix.NFTA_CHAIN_TYPE, h.typ)
	}
	s.end()
}

// dropChain deletes a chain that newChain is going to make anew.
func (b *batch) dropChain(name string) { b.chainGoes(&b.first, name) }

// setRules replaces a chain's rules.
func (b *batch) setRules(name string, rules []rule) error {
	s := &b.first
	b.message(s, unix.NFT_MSG_DELRULE, 0, "empty chain "+name)
	s.text(unix.NFTA_RULE_TABLE, b.table)
	s.text(unix.NFTA_RULE_CHAIN, name)
	s.end()
	for _, r := range rules {
		b.message(s, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, "add a rule to chain "+name)
		s.text(unix.NFTA_RULE_TABLE, b.table)
		s.text(unix.NFTA_RULE_CHAIN, name)
		list := s.nest(unix.NFTA_RULE_EXPRESSIONS)
		for _, e := range r.exprs {
			data, err := expr.Marshal(nfproto(b.family), e)
			if err != nil {
				return fmt.Errorf("encode a rule of chain %s: %w", name, err)
			}
			s.bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, data)
		}
		s.endNest(list)
		if r.comment != "" {
			s.bytes(unix.NFTA_RULE_USERDATA, appendComment(nil, udataComment, r.comment))
		}
		s.end()
	}
	return nil
}

// deleteChain deletes a chain when all else is done.
func (b *batch) deleteChain(name string) { b.chainGoes(&b.last, name) }

func (b *batch) chainGoes(s *stream, name string) {
	b.message(s, unix.NFT_MSG_DELCHAIN, 0, "delete chain "+name)
	s.text(unix.NFTA_CHAIN_TABLE, b.table)
	s.text(unix.NFTA_CHAIN_NAME, name)
	s.end()
}

func (b *batch) addElement(k elemKey, v elemValue) { b.addCounted(k, v, counts{}) }

// addCounted adds an element whose counter, if the set has any, begins at n.
func (b *batch) addCounted(k elemKey, v elemValue, n counts) {
	b.stats.Added++
	s := b.openElements(&b.add[k.set], &b.openAdd[k.set], unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, k.set)
	e := s.nest(unix.NFTA_LIST_ELEM)
	b.key(s, k, v)
	n.encode(s)
	switch {
	case v.verdict != noVerdict:
		data := s.nest(unix.NFTA_SET_ELEM_DATA)
		n := s.nest(unix.NFTA_DATA_VERDICT)
		s.be32(unix.NFTA_VERDICT_CODE, v.verdict.code())
		if v.verdict != verdictDrop {
			s.text(unix.NFTA_VERDICT_CHAIN, v.chain.String())
		}
		s.endNest(n)
		s.endNest(data)
	case v.n > 0:
		data := s.nest(unix.NFTA_SET_ELEM_DATA)
		s.bytes(unix.NFTA_DATA_VALUE, v.b[:v.n])
		s.endNest(data)
	}
	if v.comment != "" {
		at := len(s.buf)
		s.header(0, unix.NFTA_SET_ELEM_USERDATA)
		s.buf = appendComment(s.buf, udataComment, v.comment)
		s.endNest(at)
		s.pad()
	}
	s.endNest(e)
}

func (b *batch) deleteElement(k elemKey, v elemValue) {
	b.stats.Removed++
	b.removed[k.set]++
	s := b.openElements(&b.del[k.set], &b.openDel[k.set], unix.NFT_MSG_DELSETELEM, 0, k.set)
	e := s.nest(unix.NFTA_LIST_ELEM)
	b.key(s, k, v)
	s.endNest(e)
}

// key encodes an element's key, and the range's end in a set of ranges.
func (b *batch) key(s *stream, k elemKey, v elemValue) {
	n := s.nest(unix.NFTA_SET_ELEM_KEY)
	s.bytes(unix.NFTA_DATA_VALUE, k.b[:k.n])
	s.endNest(n)
	if v.end.IsValid() {
		to := v.end.AsSlice()
		n := s.nest(nftaSetElemKeyEnd)
		s.header(int(k.n), unix.NFTA_DATA_VALUE)
		s.buf = append(s.buf, k.b[:int(k.n)-len(to)]...)
		s.buf = append(s.buf, to...)
		s.endNest(n)
	}
}

// openElements returns the stream with a message open into which an element can be put.
func (b *batch) openElements(s *stream, open *int, typ int, flags uint16, id setID) *stream {
	if *open != 0 && len(s.buf)-s.start > elementLimit {
		closeElements(s, open)
	}
	if *open == 0 {
		verb := "add to "
		if typ == unix.NFT_MSG_DELSETELEM {
			verb = "remove from "
		}
		b.message(s, typ, flags, verb+b.defs[id].name)
		b.defs[id].nameForElements(s, b.table)
		*open = s.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	}
	return s
}

func closeElements(s *stream, open *int) {
	if *open != 0 {
		s.endNest(*open)
		s.end()
		*open = 0
	}
}

func (v verdict) code() uint32 {
	switch v {
	case verdictGoto:
		return codeGoto
	case verdictJump:
		return codeJump
	}
	return nfDrop
}

// Attributes and user data types that golang.org/x/sys does not name.
const (
	nftaTableUserdata = 6  // NFTA_TABLE_USERDATA, kernel 5.10
	nftaTableOwner    = 7  // NFTA_TABLE_OWNER, kernel 5.12
	nftaSetElemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END, kernel 5.6
	nfDrop            = 0  // NF_DROP, linux/netfilter.h
	nfAccept          = 1  // NF_ACCEPT
	udataComment      = 0  // NFTNL_UDATA_{TABLE,CHAIN,RULE,SET_ELEM}_COMMENT, libnftnl's udata.h
)

// errTooBig says that a transaction does not fit the socket.
var errTooBig = errors.New("the transaction is larger than the netlink socket's buffer; raise net.core.wmem_max")

// commit sends the batch as one transaction and empties it.
func (c *conn) commit(b *batch) error {
	defer b.reset()
	for i := range b.del {
		closeElements(&b.del[i], &b.openDel[i])
		closeElements(&b.add[i], &b.openAdd[i])
	}
	var begin, end stream
	c.seq++
	first := c.seq
	begin.begin(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, first, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	begin.end()
	parts := [][]byte{begin.buf}
	total := 0
	var lastPart *stream
	for _, s := range b.streams() {
		if len(s.buf) > 0 {
			parts = append(parts, s.buf)
			total += len(s.buf)
			lastPart = s
		}
	}
	if lastPart == nil {
		return nil
	}
	if total > c.sendLimit {
		return errTooBig
	}
	// Only the last message is acknowledged: that comes after the commit. A message that fails is told of in any case.
	flags := binary.NativeEndian.Uint16(lastPart.buf[lastPart.start+6:])
	binary.NativeEndian.PutUint16(lastPart.buf[lastPart.start+6:], flags|unix.NLM_F_ACK)
	last := binary.NativeEndian.Uint32(lastPart.buf[lastPart.start+8:])
	c.seq++
	end.begin(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, c.seq, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	end.end()
	parts = append(parts, end.buf)

	c.drain()
	if err := c.send(parts); err != nil {
		return fmt.Errorf("send a transaction of %d bytes to nf_tables: %w", total, err)
	}
	return c.result(first, last, b.ops)
}

// result reads the kernel's replies to a transaction, which all wait already.
func (c *conn) result(first, last uint32, ops map[uint32]string) error {
	var failed error
	acked := false
	for {
		buf, err := c.receive()
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return fmt.Errorf("read nf_tables' answer: %w", err)
		}
		err = eachMessage(buf, func(m message) (bool, error) {
			if m.typ != unix.NLMSG_ERROR {
				return false, nil
			}
			err := ackError(m)
			switch {
			case err == nil && m.seq == last:
				acked = true
			case err != nil && failed == nil && m.seq == first:
				failed = fmt.Errorf("commit to nf_tables: %w", err)
			case err != nil && failed == nil:
				failed = fmt.Errorf("%s: %w", ops[m.seq], err)
			}
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	if failed == nil && !acked {
		return errors.New("nf_tables did not answer a transaction")
	}
	return failed
}
