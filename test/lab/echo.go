package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"sluice/proxy"
)

// serve starts a host's echo servers on its main address of each family, and on
// the host's other addresses too. Each answers a line or a datagram with one line: the host's name, the port, and
// the address it saw as the client's. They end with ctx.
func (l *Lab) serve(ctx context.Context, h *Host, ports []uint16) error {
	return h.Do(func() error {
		for _, f := range proxy.Families {
			for _, addr := range h.Addrs(f) {
				for _, port := range ports {
					at := netip.AddrPortFrom(addr, port)
					// An own socket for each address, so that UDP answers come from where the question went.
					if err := l.serveTCP(ctx, h, at); err != nil {
						return err
					}
					if err := l.serveUDP(ctx, h, at); err != nil {
						return err
					}
				}
				if err := l.serveSCTP(ctx, h, addr, ports); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// echoLine is what an echo server says.
func echoLine(h *Host, port uint16, client netip.Addr) string {
	return h.name + ":" + strconv.Itoa(int(port)) + " " + client.Unmap().String() + "\n"
}

// goServe runs a server that ends when close was called, which happens at the end of ctx.
func (l *Lab) goServe(ctx context.Context, close func() error, run func()) {
	stop := context.AfterFunc(ctx, func() { close() })
	l.servers.Go(func() {
		run()
		if stop() {
			close()
		}
	})
}

func (l *Lab) serveTCP(ctx context.Context, h *Host, at netip.AddrPort) error {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("serve TCP in %s: %w", h.name, err)
	}
	l.goServe(ctx, listener.Close, func() {
		for {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			client := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
			l.goServe(ctx, conn.Close, func() {
				for in := bufio.NewScanner(conn); in.Scan(); {
					if _, err := conn.Write([]byte(echoLine(h, at.Port(), client))); err != nil {
						return
					}
				}
			})
		}
	})
	return nil
}

func (l *Lab) serveUDP(ctx context.Context, h *Host, at netip.AddrPort) error {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("serve UDP in %s: %w", h.name, err)
	}
	l.goServe(ctx, conn.Close, func() {
		question := make([]byte, 64)
		for ctx.Err() == nil {
			_, client, err := conn.ReadFromUDPAddrPort(question)
			if err != nil {
				continue // an ICMP error about an earlier answer, or the end
			}
			conn.WriteToUDPAddrPort([]byte(echoLine(h, at.Port(), client.Addr())), client)
		}
	})
	return nil
}

// awaitReachable waits until every host reaches the servers of each other that it
// is to send to, so that no probe waits for a link or a neighbour's address.
func (l *Lab) awaitReachable(ctx context.Context, port uint16) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	type pair struct{ from, to *Host }
	var pairs []pair
	for _, pod := range l.Pods {
		pairs = append(pairs, pair{l.Node, pod}, pair{l.FarPods[0], pod})
	}
	for _, pod := range l.FarPods {
		pairs = append(pairs, pair{pod, l.Node}, pair{l.Node, pod}, pair{l.Pods[0], pod})
	}
	pairs = append(pairs, pair{l.Outside, l.Node}, pair{l.Outside, l.FarPods[0]})
	for _, p := range pairs {
		for _, f := range proxy.Families {
			probe := Probe{From: p.from, To: netip.AddrPortFrom(p.to.Addr(f), port), Protocol: proxy.UDP, Timeout: 20 * time.Millisecond}
			for {
				result := probe.Send(ctx)
				if result.Kind == Reached {
					break
				}
				if ctx.Err() != nil {
					return fmt.Errorf("wait for %s to reach %s over %s: %s", p.from.name, p.to.name, f, result)
				}
			}
		}
	}
	return nil
}
