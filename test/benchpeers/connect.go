package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// connections is how many first packets are timed.
const connections = 500

// firstPackets times the system call that sends the first packet of a TCP connection from the node to a Service, to many
// Services in turn: the packet passes the rules before the call returns. It returns the median.
func (p *process) firstPackets(s size) (time.Duration, error) {
	var all []time.Duration
	err := p.ns.Do(func() error {
		for i := range connections {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			to := &unix.SockaddrInet4{Port: 80, Addr: address(firstClusterIP, uint32(i*7919%s.services)).As4()}
			began := time.Now()
			err = unix.Connect(fd, to)
			all = append(all, time.Since(began))
			unix.Close(fd)
			if err != nil && !errors.Is(err, unix.EINPROGRESS) {
				return fmt.Errorf("connect to a Service: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return median(all), nil
}
