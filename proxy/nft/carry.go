package nft

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// counts are what a counter has counted.
type counts struct{ packets, bytes uint64 }

// countsAtOnce bounds how many elements are asked for in one request: the kernel answers each by a message of its own,
// for which it takes 4 to 8 KiB of the socket's buffer.
const countsAtOnce = 64

// carried reads the counters of the frontends that are going to lead to another chain: an element cannot be changed, and
// the one that takes its place goes on counting from there. What is not told begins at 0; it is not worth an error.
func (w *Writer) carried(changes []proxy.FrontendChange) map[elemKey]counts {
	var keys []elemKey
	for i := range changes {
		c := &changes[i]
		was, had := serviceValue(c.Old)
		is, has := serviceValue(c.New)
		if had && has && was != is {
			keys = append(keys, frontendKey(serviceIPs, c.Frontend))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	all := make(map[elemKey]counts, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), countsAtOnce)
		w.readCounts(keys[:n], all)
		keys = keys[n:]
	}
	return all
}

// readCounts reads the counters of some elements.
func (w *Writer) readCounts(keys []elemKey, into map[elemKey]counts) {
	err := w.askElements(serviceIPs, keys, func(e []byte) {
		if n, ok := parseCounter(e); ok {
			into[frontendKey(serviceIPs, n.Frontend)] = counts{n.Packets, n.Bytes}
		}
	})
	if err != nil {
		w.log.Debug("counters not read", "error", err)
	}
}

// askElements asks for elements of a set by their keys, and calls fn for each that there is. After one that there is not the
// kernel tells of no other: that is ENOENT.
func (w *Writer) askElements(id setID, keys []elemKey, fn func(e []byte)) error {
	c := w.conn
	c.drain()
	c.seq++
	seq := c.seq
	var s stream
	s.begin(uint16(unix.NFNL_SUBSYS_NFTABLES)<<8|unix.NFT_MSG_GETSETELEM, unix.NLM_F_REQUEST, seq, nfproto(w.opts.Family), 0)
	w.batch.defs[id].nameForElements(&s, TableName)
	list := s.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, k := range keys {
		e := s.nest(unix.NFTA_LIST_ELEM)
		w.batch.key(&s, k, elemValue{})
		s.endNest(e)
	}
	s.endNest(list)
	s.end()
	if err := c.send([][]byte{s.buf}); err != nil {
		return err
	}
	for {
		b, err := c.receive()
		if errors.Is(err, unix.EAGAIN) {
			return nil // the kernel has answered while the request was sent
		}
		if err == nil {
			err = eachMessage(b, func(m message) (bool, error) {
				if m.seq != seq {
					return false, nil
				}
				if m.typ == unix.NLMSG_ERROR {
					return true, ackError(m)
				}
				eachElement(m.attrs(), fn)
				return false, nil
			})
		}
		if err != nil {
			return err
		}
	}
}

// askElement asks for one element. In a set of ranges it is the one that the key is in.
func (w *Writer) askElement(k elemKey) (is elemKey, v elemValue, expires time.Duration, found bool, err error) {
	err = w.askElements(k.set, []elemKey{k}, func(e []byte) {
		is, v, expires = parseElement(k.set, e)
		found = true
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return is, v, expires, found, err
}

// encode makes a new element's counter begin there.
func (n counts) encode(s *stream) {
	if n == (counts{}) {
		return // the set's own
	}
	e := s.nest(unix.NFTA_SET_ELEM_EXPR)
	s.text(unix.NFTA_EXPR_NAME, "counter")
	data := s.nest(unix.NFTA_EXPR_DATA)
	s.be64(unix.NFTA_COUNTER_BYTES, n.bytes)
	s.be64(unix.NFTA_COUNTER_PACKETS, n.packets)
	s.endNest(data)
	s.endNest(e)
}
