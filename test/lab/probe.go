package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// Ping is the protocol of a probe that is an ICMP or ICMPv6 echo request. Its port is not used.
const Ping proxy.Protocol = unix.IPPROTO_ICMP

// Probe is one new connection that is tried.
type Probe struct {
	From *Host
	// Source is the address to send from; the zero Addr leaves the choice to the kernel.
	Source   netip.Addr
	To       netip.AddrPort
	Protocol proxy.Protocol
	// Timeout after which silence is silence; 0 means two seconds.
	Timeout time.Duration
}

// Kind is a sort of result.
type Kind string

// The sorts of results.
const (
	Reached     Kind = "reached"
	Refused     Kind = "refused"     // a TCP reset or an ICMP port unreachable
	Unreachable Kind = "unreachable" // another ICMP error
	Silence     Kind = "silence"     // nothing came back in time
	Failed      Kind = "failed"      // the probe could not be sent; Err says why
)

// Result is what a probe met.
type Result struct {
	Kind Kind
	// Endpoint that answered, as name:port, and the client's address that it saw.
	Endpoint string
	Source   netip.Addr
	Err      error
}

func (r Result) String() string {
	switch r.Kind {
	case Reached:
		if !r.Source.IsValid() {
			return r.Endpoint
		}
		return r.Endpoint + " from " + r.Source.String()
	case Failed:
		return "failed: " + r.Err.Error()
	}
	return string(r.Kind)
}

// nextPort gives every UDP and SCTP probe another source port, so that none meets what
// conntrack remembers of an earlier one. The range lies below the kernel's own ephemeral ports.
var nextPort atomic.Uint32

func sourcePort() uint16 { return uint16(10000 + nextPort.Add(1)%20000) }

// Send tries the connection and ends it.
func (p Probe) Send(ctx context.Context) Result {
	switch p.Protocol {
	case proxy.SCTP:
		return p.sendSCTP(ctx)
	case Ping:
		return p.sendPing(ctx)
	}
	session, result := p.Open(ctx)
	if session != nil {
		session.Close()
	}
	return result
}

// SendAll sends probes at the same time and returns their results in the same order.
func SendAll(ctx context.Context, probes []Probe) []Result {
	results := make([]Result, len(probes))
	var group sync.WaitGroup
	for i, p := range probes {
		group.Go(func() { results[i] = p.Send(ctx) })
	}
	group.Wait()
	return results
}

// Session is a TCP connection or a UDP flow that stays open.
type Session struct {
	conn    net.Conn
	answers *bufio.Reader
	timeout time.Duration
}

// Open tries a TCP connection or a UDP flow and keeps it. The session is nil if it reached nothing.
func (p Probe) Open(ctx context.Context) (*Session, Result) {
	s, err := p.Dial(ctx)
	if err != nil {
		return nil, failure(err)
	}
	result := s.Ask()
	if result.Kind != Reached {
		s.Close()
		return nil, result
	}
	return s, result
}

// Dial opens a session without a question. Of UDP nothing is sent yet, so that whether anyone answers does not matter.
func (p Probe) Dial(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	dialer := net.Dialer{Control: hearErrors}
	network := "tcp"
	switch p.Protocol {
	case proxy.TCP:
		if p.Source.IsValid() {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Source, 0))
		}
	case proxy.UDP:
		network = "udp"
		source := p.Source
		if !source.IsValid() {
			source = netip.IPv4Unspecified()
			if p.To.Addr().Is6() {
				source = netip.IPv6Unspecified()
			}
		}
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, sourcePort()))
	default:
		return nil, fmt.Errorf("no sessions over protocol %s", p.Protocol)
	}
	s := &Session{timeout: p.timeout()}
	err := p.From.Do(func() (err error) {
		s.conn, err = dialer.DialContext(ctx, network, p.To.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	s.answers = bufio.NewReader(s.conn)
	return s, nil
}

// Ask sends one question over the session.
func (s *Session) Ask() Result {
	s.conn.SetDeadline(time.Now().Add(s.timeout))
	if _, err := s.conn.Write([]byte("\n")); err != nil && !dropped(err) {
		return failure(err)
	}
	line, err := s.answers.ReadString('\n')
	if err != nil {
		return failure(err)
	}
	return parseEcho(line)
}

// Close ends the session, a TCP connection by a reset, so that no socket lingers.
func (s *Session) Close() error {
	if tcp, ok := s.conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	return s.conn.Close()
}

func (p Probe) timeout() time.Duration {
	if p.Timeout == 0 {
		return 2 * time.Second
	}
	return p.Timeout
}

// parseEcho reads what echoLine wrote.
func parseEcho(line string) Result {
	endpoint, client, _ := strings.Cut(strings.TrimSpace(line), " ")
	source, err := netip.ParseAddr(client)
	if err != nil {
		return Result{Kind: Failed, Err: fmt.Errorf("read the answer %q: %w", line, err)}
	}
	return Result{Kind: Reached, Endpoint: endpoint, Source: source}
}

// hearErrors makes a socket tell of every ICMP error at once, also of those that
// the kernel does not hold for final.
func hearErrors(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// Only the option of the socket's own family takes effect.
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	})
}

// dropped tells whether a packet could not be sent because the sender's own
// output hook dropped or rejected it. If it was rejected, reading from the socket gives the ICMP error.
func dropped(err error) bool { return errors.Is(err, syscall.EPERM) }

// failure sorts a socket's error.
func failure(err error) Result {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return Result{Kind: Refused}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOPROTOOPT):
		return Result{Kind: Unreachable}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Result{Kind: Silence}
	}
	return Result{Kind: Failed, Err: err}
}
