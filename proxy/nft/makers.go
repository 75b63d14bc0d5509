package nft

import (
	"context"
	"encoding/binary"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// makers know who made the last transactions in a namespace. The kernel tells that at the end of each, and nobody waits for it: it
// is read when somebody wants to know, and every drainPause, before there is no room for it any more.
type makers struct {
	conn *conn
	// last are those that were read, by the lower half of their generation; next is the one that goes.
	last [64]struct {
		generation uint16
		by         proxy.Program
	}
	next int
}

// drainPause: the socket has room for a thousand and more, and programs that make a hundred transactions a second are rare.
const drainPause = 5 * time.Second

// openMakers begins to listen, until ctx ends, unless another writer has.
func (p *Peers) openMakers(ctx context.Context, netns int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.makers != nil {
		return nil
	}
	c, err := dial(netns)
	if err != nil {
		return err
	}
	err = setFilter(c.nl,
		bpf.LoadAbsolute{Off: typeOffset, Size: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeOf(unix.NFT_MSG_NEWGEN), SkipTrue: 1}, drop, pass)
	if err == nil {
		err = c.nl.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		c.Close()
		return err
	}
	l := &listener{nl: c.nl, missed: make(chan struct{}, 1)} // what it misses, nobody is told of
	p.makers = &makers{conn: c}
	p.listeners = append(p.listeners, l)
	go func() {
		ticks := time.NewTicker(drainPause)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				p.mu.Lock()
				p.makers.drain()
				p.mu.Unlock()
			case <-ctx.Done():
				p.forget(l)
				p.mu.Lock()
				defer p.mu.Unlock()
				p.makers = nil
				c.Close()
				return
			}
		}
	}()
	return nil
}

// drain reads what waits.
func (m *makers) drain() {
	for {
		b, err := m.conn.receive()
		if err == unix.ENOBUFS { // some are lost
			continue
		}
		if err != nil {
			return
		}
		_ = eachMessage(b, func(msg message) (bool, error) {
			if len(msg.body) >= nfgenmsgLen {
				at := &m.last[m.next]
				at.generation, at.by = generationOf(msg.body), programOf(msg.attrs())
				m.next = (m.next + 1) % len(m.last)
			}
			return false, nil
		})
	}
}

// maker returns who made a transaction, if that is known.
func (p *Peers) maker(generation uint16) proxy.Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.makers == nil {
		return proxy.Program{}
	}
	m := p.makers
	m.drain()
	for i := range m.last { // the latest first: 16 bits come again
		if at := &m.last[(m.next+2*len(m.last)-1-i)%len(m.last)]; at.generation == generation {
			return at.by
		}
	}
	return proxy.Program{}
}

// generationOf is the lower half of the number of the transaction that a notification is of: struct nfgenmsg's res_id, as
// nfnl_fill_hdr sets it.
func generationOf(body []byte) uint16 { return binary.BigEndian.Uint16(body[2:]) }

// programOf reads who made a transaction from the attributes of the notification that ends it.
func programOf(attrs []byte) (p proxy.Program) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_GEN_PROC_PID:
			p.PID = int(be32(v))
		case unix.NFTA_GEN_PROC_NAME:
			p.Name = cString(v)
		}
	})
	return p
}
