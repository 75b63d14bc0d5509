package nft

import (
	"errors"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Peers are the writers of one program.
type Peers struct {
	mu        sync.Mutex
	ports     []uint32
	listeners []*listener
	makers    *makers
}

// listener is a socket that gets nf_tables' notifications.
type listener struct {
	nl *netlink.Conn
	// missed gets a message when some did not come.
	missed chan struct{}
}

func (p *Peers) add(port uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = append(p.ports, port)
}

// listen notes a listener, and returns the ports of all writers.
func (p *Peers) listen(l *listener) (ports []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, l)
	return slices.Clone(p.ports)
}

// forget forgets a listener, which is about to be closed.
func (p *Peers) forget(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = slices.DeleteFunc(p.listeners, func(have *listener) bool { return have == l })
}

// loudBatch is the size in bytes from which on a transaction is made while nobody listens. While any socket
// does, the kernel makes a notification of some 8 KiB for each element and keeps them all up to the end of the transaction, also
// for those who filter them out: a transaction of 1 MiB would take 100 MB of memory.
const loudBatch = 32 << 10

// commit makes the batch's changes in one transaction.
func (w *Writer) commit(b *batch) error {
	if w.dry {
		b.reset()
		return nil
	}
	if b.size() < loudBatch {
		return w.conn.commit(b)
	}
	return w.opts.Peers.unheard(w.conn, func() error { return w.conn.commit(b) })
}

// unheard runs commit, which makes one transaction, while the program's listeners get no notifications. If another program
// made one meanwhile, they are told that they missed something.
func (p *Peers) unheard(c *conn, commit func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.listeners) == 0 {
		return commit()
	}
	before, unknown := c.generation()
	// The kernel counts a transaction before it tells of it. What was counted is told of by the end of this, and heard.
	unknown = errors.Join(unknown, c.awaitOthers())
	for _, l := range p.listeners {
		_ = l.nl.LeaveGroup(unix.NFNLGRP_NFTABLES) // where that fails, notifications come as ever
	}
	err := commit()
	if err == nil {
		before++
	}
	for _, l := range p.listeners {
		if l.nl.JoinGroup(unix.NFNLGRP_NFTABLES) != nil {
			l.nl.Close() // so that another is opened
		}
	}
	after, err2 := c.generation()
	if unknown != nil || err2 != nil || after != before {
		for _, l := range p.listeners {
			select {
			case l.missed <- struct{}{}:
			default: // it is about to look anyway
			}
		}
	}
	return err
}

// awaitOthers returns when no transaction is under way that was when it was called: the kernel makes one after the other
// (commit_mutex in nf_tables_api.c), this one too, which changes nothing.
func (c *conn) awaitOthers() error {
	var s stream
	c.seq++
	s.begin(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, c.seq, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	s.end()
	c.seq++
	s.begin(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, c.seq, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	s.end()
	return c.send([][]byte{s.buf})
}

// generation reads the number that each transaction in the namespace counts up.
func (c *conn) generation() (uint32, error) {
	var s stream
	c.seq++
	s.begin(uint16(unix.NFNL_SUBSYS_NFTABLES)<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, c.seq, unix.AF_UNSPEC, 0)
	s.end()
	c.drain()
	if err := c.send([][]byte{s.buf}); err != nil {
		return 0, err
	}
	answer, err := c.receive()
	if err != nil {
		return 0, err
	}
	var generation uint32
	found := false
	err = eachMessage(answer, func(m message) (bool, error) {
		if m.typ == unix.NLMSG_ERROR {
			return true, ackError(m)
		}
		eachAttr(m.attrs(), func(typ uint16, v []byte) {
			if typ == unix.NFTA_GEN_ID {
				generation, found = be32(v), true
			}
		})
		return true, nil
	})
	if err == nil && !found {
		err = errors.New("nf_tables told no generation")
	}
	return generation, err
}
