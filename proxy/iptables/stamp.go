package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/netns"
)

// stamp is another one when rules are others, as far as the kernel tells cheaply.
type stamp [int(tableCount) * getinfoSize]byte

// after is the stamp of a generation that is n transactions later.
func (s stamp) after(n int) stamp {
	binary.BigEndian.PutUint32(s[:], binary.BigEndian.Uint32(s[:])+uint32(n))
	return s
}

// stamper reads the stamp of one family's rules.
type stamper struct {
	read  func() (stamp, error)
	close func()
	// exact is true if every change makes another stamp.
	exact bool
}

// openStamp opens what stamps are read from.
func (w *Writer) openStamp() (s stamper, err error) {
	if w.variant.Name == NFT {
		s, err = openGeneration(w.opts.NetNS)
	} else {
		s, err = openGetinfo(w.opts.NetNS, w.opts.Family)
	}
	if err != nil {
		return s, fmt.Errorf("watch the rules of %s: %w", w.variant, err)
	}
	return s, nil
}

// openGeneration has nf_tables' generation for a stamp: a number that each transaction in the namespace changes.
func openGeneration(ns int) (stamper, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if err != nil {
		return stamper{}, err
	}
	request := netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, 4), // struct nfgenmsg
	}
	read := func() (s stamp, err error) {
		answers, err := nl.Execute(request)
		if err != nil {
			return s, err
		}
		if len(answers) == 0 || len(answers[0].Data) < 12 {
			return s, errors.New("nf_tables told no generation")
		}
		// The first attribute is NFTA_GEN_ID, behind its header of four bytes. Others tell who changed it last.
		copy(s[:], answers[0].Data[8:12])
		return s, nil
	}
	return stamper{read: read, close: func() { nl.Close() }, exact: true}, nil
}

// getinfoSize is the size of struct ipt_getinfo and struct ip6t_getinfo (linux/netfilter_ipv4/ip_tables.h and
// its like): the table's name, and then hooks, offsets of chains, number of entries and size of all rules.
const getinfoSize = 32 + 13*4

// soGetInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
const soGetInfo = 64

// openGetinfo has the sizes of the tables for a stamp. A rule that takes the place of another of the same size does not change it.
func openGetinfo(ns int, f proxy.Family) (stamper, error) {
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if f == proxy.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	var fd int
	err := netns.Do(ns, func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		return stamper{}, err
	}
	read := func() (s stamp, err error) {
		for t := range tableCount {
			info := s[int(t)*getinfoSize:][:getinfoSize]
			copy(info, t.String())
			size := uint32(getinfoSize)
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), soGetInfo,
				uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
			if errno != 0 {
				return s, fmt.Errorf("read the size of table %s: %w", t, errno)
			}
		}
		return s, nil
	}
	return stamper{read: read, close: func() { unix.Close(fd) }}, nil
}
