package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"sluice/proxy"
)

const (
	// quiet is how long changes must have ceased before they are told of, and
	// loud how long they can go on until they are told of all the same.
	quiet = 20 * time.Millisecond
	loud  = 200 * time.Millisecond
	// reopen is the pause after a socket failed, and between two attempts to open one.
	reopen = time.Second
)

// Watch implements proxy.Writer by nf_tables' notifications (group
// NFNLGRP_NFTABLES). Those of the program's own changes are left out by their netlink ports.
func (w *Writer) Watch(ctx context.Context, changed func(by proxy.Program)) error {
	l, err := w.listen()
	if err != nil {
		return err
	}
	if err := w.opts.Peers.openMakers(ctx, w.opts.NetNS); err != nil {
		w.log.Debug("which programs change rules is not told", "error", err)
	}
	go func() {
		for {
			err := w.watch(ctx, l, changed)
			if ctx.Err() != nil {
				return
			}
			w.log.Error("nftables notifications ended; they are asked for again", "family", w.opts.Family, "error", err, "retry", reopen)
			if l = w.listenAgain(ctx); l == nil {
				return
			}
			w.log.Info("nftables notifications come again", "family", w.opts.Family)
			changed(proxy.Program{}) // what was missed is not known
		}
	}()
	return nil
}

// listen opens a socket that gets notifications.
func (w *Writer) listen() (*listener, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: w.opts.NetNS, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, fmt.Errorf("listen to nftables notifications: %w", err)
	}
	l := &listener{nl: nl, missed: make(chan struct{}, 1)}
	if err := ignore(nl, w.opts.Peers.listen(l)); err != nil {
		w.opts.Peers.forget(l)
		nl.Close()
		return nil, fmt.Errorf("filter nftables notifications: %w", err)
	}
	// A large change by another program must fit; what does not is noticed by ENOBUFS.
	_ = nl.SetReadBuffer(receiveBuffer)
	return l, nil
}

// listenAgain tries to listen until it can; nil when ctx has ended.
func (w *Writer) listenAgain(ctx context.Context) *listener {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reopen):
		}
		if l, err := w.listen(); err == nil {
			return l
		}
	}
}

// ignore keeps the messages about this program's changes from a socket, so
// that large transactions of its own do not make it overflow. All messages of a
// transaction have the same port, and the kernel puts no two transactions into one datagram. Datagrams with one
// message, about another table, are kept away, too: a program that changes its own rules all the time wakes nobody. So are
// those that say who made a transaction, see makers.
func ignore(nl *netlink.Conn, ports []uint32) error {
	const tableOffset = nlmsghdrLen + nfgenmsgLen + nlattrLen // of the first attribute, which names the table
	word := func(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
	filter := []bpf.Instruction{bpf.LoadAbsolute{Off: portOffset, Size: 4}}
	for _, port := range ports {
		filter = append(filter, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word(binary.NativeEndian.AppendUint32(nil, port)), SkipTrue: 1}, drop)
	}
	name := append([]byte(TableName), 0, 0)
	low := uint32(lengthOffset) // of the length's lower half, byte by byte
	high := low + 1
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		low, high = low+3, low+2
	}
	filter = append(filter,
		bpf.LoadAbsolute{Off: typeOffset, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeOf(unix.NFT_MSG_NEWGEN), SkipTrue: 1}, drop,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeOf(unix.NFT_MSG_NEWCHAIN), SkipTrue: 1}, pass,
		bpf.LoadAbsolute{Off: high, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpShiftLeft, Val: 8}, bpf.TAX{},
		bpf.LoadAbsolute{Off: low, Size: 1}, bpf.ALUOpX{Op: bpf.ALUOpOr}, bpf.TAX{},
		bpf.LoadExtension{Num: bpf.ExtLen}, bpf.JumpIfX{Cond: bpf.JumpEqual, SkipTrue: 1}, pass, // several messages
		bpf.LoadAbsolute{Off: tableOffset, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: word(name), SkipTrue: 1}, drop,
		bpf.LoadAbsolute{Off: tableOffset + 4, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: word(name[4:]), SkipTrue: 1}, drop,
		pass)
	return setFilter(nl, filter...)
}

// watch tells of changes until ctx ends or the listener fails, and closes it.
func (w *Writer) watch(ctx context.Context, l *listener, changed func(by proxy.Program)) error {
	end := func() {
		w.opts.Peers.forget(l)
		l.nl.Close()
	}
	defer end()
	defer context.AfterFunc(ctx, end)()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-l.missed:
				changed(proxy.Program{})
			}
		}
	}()
	var last uint16     // the generation of the last change that concerns us
	var first time.Time // of the burst that is not told of yet
	for {
		if first.IsZero() {
			_ = l.nl.SetReadDeadline(time.Time{})
		} else {
			_ = l.nl.SetReadDeadline(time.Now().Add(quiet))
		}
		msgs, err := l.nl.Receive()
		ours := errors.Is(err, unix.ENOBUFS) // notifications were lost
		if err != nil && !ours {
			if t, ok := err.(interface{ Timeout() bool }); !ok || !t.Timeout() {
				return err
			}
		}
		for _, m := range msgs {
			if w.concerns(m) {
				ours, last = true, generationOf(m.Data)
			}
		}
		switch {
		case ours && first.IsZero():
			first = time.Now()
		case !first.IsZero() && (len(msgs) == 0 || time.Since(first) > loud):
			first = time.Time{}
			changed(w.opts.Peers.maker(last))
		}
	}
}

// concerns tells whether a notification is about our table, or about a nat chain of another program that now comes before ours.
func (w *Writer) concerns(m netlink.Message) bool {
	if len(m.Data) < nfgenmsgLen {
		return false
	}
	typ := uint16(m.Header.Type)
	if typ>>8 != unix.NFNL_SUBSYS_NFTABLES || typ&0xff == unix.NFT_MSG_NEWGEN {
		return false
	}
	attrs := m.Data[nfgenmsgLen:]
	if typ&0xff == unix.NFT_MSG_NEWCHAIN {
		if c, base := parseBaseChain(attrs); base && c.Table != TableName {
			c.Family = familyName(m.Data[0])
			stand := w.stand.Load()
			return stand != nil && stand.comesFirst(c, w.opts.Family)
		}
	}
	if m.Data[0] != nfproto(w.opts.Family) {
		return false
	}
	table := ""
	eachAttr(attrs, func(typ uint16, v []byte) {
		if typ == 1 { // NFTA_TABLE_NAME, and the table's name in every other kind of object
			table = cString(v)
		}
	})
	return table == TableName
}
