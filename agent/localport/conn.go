package localport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice/proxy"
)

// listener is one address that is served.
type listener struct {
	socket net.Listener

	mu    sync.Mutex
	route *proxy.Route
	// pinned is the endpoint of all clients until pinnedUntil, with session affinity.
	pinned      netip.AddrPort
	pinnedUntil time.Time
}

func (l *listener) setRoute(r *proxy.Route) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Port != l.route.Port {
		l.pinned = netip.AddrPort{}
	}
	l.route = r
}

// pick chooses the endpoint of a new connection.
func (l *listener) pick(now time.Time) netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := endpoints(l.route) // not empty: Sync sees to that
	if l.route.Affinity == 0 {
		return slots[rand.IntN(len(slots))]
	}
	if now.After(l.pinnedUntil) || !slices.Contains(slots, l.pinned) {
		l.pinned = slots[rand.IntN(len(slots))]
	}
	l.pinnedUntil = now.Add(time.Duration(l.route.Affinity) * time.Second)
	return l.pinned
}

// acceptPause is how long accepting rests when the process has no file descriptors left.
const acceptPause = 100 * time.Millisecond

// accept takes in connections until the socket is closed or fails.
func (p *Proxy) accept(l *listener, log *slog.Logger) error {
	for {
		client, err := l.socket.Accept()
		if isPassing(err) {
			select {
			case <-p.ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		if err != nil {
			return err
		}
		select {
		case p.slots <- struct{}{}:
		default:
			reset(client)
			p.warnFull(log)
			continue
		}
		p.running.Go(func() {
			defer func() { <-p.slots }()
			p.serve(client, l, log)
		})
	}
}

// warnFull says at most once a minute that connections are refused.
func (p *Proxy) warnFull(log *slog.Logger) {
	now, last := int64(time.Since(p.started)/time.Minute)+1, p.warned.Load()
	if now > last && p.warned.CompareAndSwap(last, now) {
		log.Warn("connection reset: too many connections to NodePorts on localhost", "limit", p.options.MaxConns)
	}
}

// isPassing tells whether an error of accept(2) leaves the socket in order.
func isPassing(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
}

// serve connects a client with an endpoint until both have said all.
func (p *Proxy) serve(client net.Conn, l *listener, log *slog.Logger) {
	to := l.pick(time.Now())
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	endpoint, err := p.options.Dial(ctx, "tcp", to.String())
	cancel()
	if err != nil {
		log.Debug("endpoint not reached", "endpoint", to.String(), "error", err)
		reset(client)
		return
	}
	abort := func() {
		reset(client)
		reset(endpoint)
	}
	stop := context.AfterFunc(p.ctx, abort)
	defer stop()

	var both sync.WaitGroup
	both.Go(func() { forward(endpoint, client, abort) })
	both.Go(func() { forward(client, endpoint, abort) })
	both.Wait()
	client.Close()
	endpoint.Close()
}

// forward copies one direction to its end and passes the end on: an orderly one
// leaves the other direction open, a reset ends both. Between TCP sockets io.Copy
// splices, without a buffer in user space.
func forward(to, from net.Conn, abort func()) {
	if _, err := io.Copy(to, from); err != nil {
		abort()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// reset closes a connection so that the peer sees a TCP reset, as it would
// without a proxy in between.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}
