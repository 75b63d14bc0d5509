package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/test/lab"
)

// kernel looks at nf_tables in a namespace from outside of the proxy at work there.
type kernel struct{ conn *netlink.Conn }

func openKernel(ns *lab.Namespace) (*kernel, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.FD()})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket in %v: %w", ns, err)
	}
	return &kernel{conn}, nil
}

func (k *kernel) close() error { return k.conn.Close() }

// Attributes of linux/netfilter/nf_tables.h that golang.org/x/sys/unix lacks.
const nftaGenID = 1 // NFTA_GEN_ID

// request asks nf_tables for something, in the family IPv4.
func request(message uint16, flags netlink.HeaderFlags, attributes ...netlink.Attribute) (netlink.Message, error) {
	data, err := netlink.MarshalAttributes(attributes)
	header := []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0} // struct nfgenmsg
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message), Flags: netlink.Request | flags},
		Data:   append(header, data...),
	}, err
}

func text(kind uint16, s string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: append([]byte(s), 0)}
}

// each asks and calls fn for each answer's attributes.
func (k *kernel) each(m netlink.Message, fn func(*netlink.AttributeDecoder) error) error {
	answers, err := k.conn.Execute(m)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if len(a.Data) < 4 {
			continue
		}
		d, err := netlink.NewAttributeDecoder(a.Data[4:])
		if err != nil {
			return err
		}
		if err := fn(d); err != nil {
			return err
		}
		if err := d.Err(); err != nil {
			return err
		}
	}
	return nil
}

// generation is a number that every transaction changes.
func (k *kernel) generation() (id uint32, err error) {
	m, err := request(unix.NFT_MSG_GETGEN, 0)
	if err != nil {
		return 0, err
	}
	return id, k.each(m, func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			if d.Type() == nftaGenID {
				id = binary.BigEndian.Uint32(d.Bytes())
			}
		}
		return nil
	})
}

// elements counts the elements of a set; one that does not exist has none.
func (k *kernel) elements(table, set string) (n int, err error) {
	m, err := request(unix.NFT_MSG_GETSETELEM, netlink.Dump, text(unix.NFTA_SET_ELEM_LIST_TABLE, table), text(unix.NFTA_SET_ELEM_LIST_SET, set))
	if err != nil {
		return 0, err
	}
	err = k.each(m, func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			if d.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				d.Nested(func(list *netlink.AttributeDecoder) error {
					for list.Next() {
						n++
					}
					return nil
				})
			}
		}
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return n, err
}

// chains counts a table's chains whose names have a prefix, and tells whether a base chain is there.
func (k *kernel) chains(table, base, prefix string) (n int, hooked bool, err error) {
	m, err := request(unix.NFT_MSG_GETCHAIN, netlink.Dump)
	if err != nil {
		return 0, false, err
	}
	err = k.each(m, func(d *netlink.AttributeDecoder) error {
		var in, name string
		for d.Next() {
			switch d.Type() {
			case unix.NFTA_CHAIN_TABLE:
				in = d.String()
			case unix.NFTA_CHAIN_NAME:
				name = d.String()
			}
		}
		if in == table {
			hooked = hooked || name == base
			if strings.HasPrefix(name, prefix) {
				n++
			}
		}
		return nil
	})
	return n, hooked, err
}

// awaitComplete waits until complete says yes. It asks after each transaction, and
// returns when the one was noticed that made the rules complete.
func (k *kernel) awaitComplete(ctx context.Context, complete func(*kernel) (bool, error)) (time.Time, error) {
	var known uint32
	for {
		id, err := k.generation()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask nf_tables for its generation: %w", err)
		}
		if id != known {
			at := time.Now()
			// A dump that a transaction breaks is an error: the next turn asks anew.
			if ok, err := complete(k); err == nil {
				known = id
				if ok {
					return at, nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for complete rules: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// watcher hears of the transactions in a namespace.
type watcher struct {
	conn  *netlink.Conn
	want  chan []byte
	found chan time.Time
	err   error // set when found is closed
}

// watchBuffer holds the notifications of a large transaction, in bytes.
const watchBuffer = 128 << 20

func watch(ns *lab.Namespace) (*watcher, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.FD(), Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, fmt.Errorf("listen to nf_tables in %v: %w", ns, err)
	}
	if err := conn.SetReadBuffer(watchBuffer); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w := &watcher{conn: conn, want: make(chan []byte, 1), found: make(chan time.Time, 1)}
	go w.read()
	return w, nil
}

func (w *watcher) close() error { return w.conn.Close() }

// read reports the end of the first transaction that holds the bytes that are wanted.
func (w *watcher) read() {
	defer close(w.found)
	var want []byte
	seen := false
	for {
		messages, err := w.conn.Receive()
		if err != nil {
			w.err = err
			return
		}
		select {
		case want = <-w.want:
			seen = false
		default:
		}
		for _, m := range messages {
			seen = seen || want != nil && bytes.Contains(m.Data, want)
			if seen && m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
				w.found <- time.Now()
				want, seen = nil, false
			}
		}
	}
}

// expect names the bytes whose transaction await is to return: the address of an endpoint. It
// is to be called before the change is made.
func (w *watcher) expect(address []byte) { w.want <- address }

// await returns when the transaction was in the kernel.
func (w *watcher) await(ctx context.Context) (time.Time, error) {
	select {
	case at, ok := <-w.found:
		if !ok {
			return at, fmt.Errorf("listen to nf_tables: %w", w.err)
		}
		return at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait for the change in the kernel: %w", ctx.Err())
	}
}
