// Package localport serves NodePorts at the loopback addresses, where nftables
// cannot: the kernel does not route packets from 127.0.0.1 out of the node. Listeners
// in user space hand each TCP connection on to an endpoint.
package localport

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/proxy"
)

// DefaultMaxConns is how many connections there may be at a time, over all ports. Each costs
// two sockets, two goroutines and, while data flows, up to two pipes.
const DefaultMaxConns = 512

// dialTimeout is how long an endpoint may take to accept a connection, as in kube-proxy.
const dialTimeout = 5 * time.Second

// Options for New.
type Options struct {
	// Listen and Dial open sockets; nil are those of a zero net.ListenConfig and net.Dialer. Their
	// TCP keep-alive ends connections whose peer is gone; there is no other idle timeout, as for
	// connections that the kernel forwards.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxConns bounds the connections; more are reset. 0 is DefaultMaxConns.
	MaxConns int
	// MaxListeners bounds the addresses that are listened at; 0 is no limit.
	MaxListeners int
	// Log gets what goes wrong; nil is slog.Default().
	Log *slog.Logger
}

// Proxy serves NodePorts at loopback addresses.
type Proxy struct {
	options Options
	// slots has one token for each connection.
	slots chan struct{}
	// warned is when the lack of tokens was logged last, in minutes since started, the first of which is 1.
	warned  atomic.Int64
	started time.Time
	// ctx ends connections.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listeners map[netip.AddrPort]*listener
	failed    map[netip.AddrPort]string // the error that was logged for an address that cannot be had
	failures  uint64
	over      bool // there are more than MaxListeners
}

// Stats tells how many addresses are listened at, and how often one could not be had so far.
func (p *Proxy) Stats() (listeners int, failures uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.listeners), p.failures
}

// New returns a Proxy that serves nothing yet.
func New(o Options) *Proxy {
	if o.Listen == nil {
		o.Listen = new(net.ListenConfig).Listen
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.MaxConns == 0 {
		o.MaxConns = DefaultMaxConns
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &Proxy{
		started: time.Now(),
		options: o, slots: make(chan struct{}, o.MaxConns),
		listeners: map[netip.AddrPort]*listener{}, failed: map[netip.AddrPort]string{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Sync serves these routes and no others. New connections go to a random slot of
// the route's LocalPool if it is set, else of its Pool; with affinity all clients
// count as one, for they have one address. A route without slots is not listened for, so
// that clients are refused. Connections go on whatever changes, also when their
// route is gone. An address that cannot be had is logged once and tried again at the next Sync.
func (p *Proxy) Sync(routes map[netip.AddrPort]*proxy.Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, l := range p.listeners {
		if len(endpoints(routes[at])) == 0 {
			l.socket.Close()
			delete(p.listeners, at)
		}
	}
	maps.DeleteFunc(p.failed, func(at netip.AddrPort, _ string) bool { return len(endpoints(routes[at])) == 0 })
	over := 0
	for _, at := range slices.SortedFunc(maps.Keys(routes), netip.AddrPort.Compare) {
		route := routes[at]
		if l := p.listeners[at]; l != nil {
			l.setRoute(route)
		} else if len(endpoints(route)) == 0 {
			continue
		} else if p.options.MaxListeners > 0 && len(p.listeners) >= p.options.MaxListeners {
			over++
		} else {
			p.listen(at, route)
		}
	}
	if over > 0 && !p.over {
		p.failures++
		p.options.Log.Error("NodePorts are not served on localhost: there are more than fit into this process' file descriptors",
			"served", len(p.listeners), "not served", over)
	}
	p.over = over > 0
}

func endpoints(r *proxy.Route) []netip.AddrPort {
	switch {
	case r == nil:
		return nil
	case r.LocalPool != nil:
		return r.LocalPool.Slots
	case r.Pool != nil:
		return r.Pool.Slots
	}
	return nil
}

func (p *Proxy) listen(at netip.AddrPort, route *proxy.Route) {
	log := p.options.Log.With("service", route.Port.String(), "address", at.String())
	socket, err := p.options.Listen(p.ctx, "tcp", at.String())
	if err != nil {
		p.failures++
		if p.failed[at] != err.Error() {
			log.Error("NodePort is not served on localhost; tried again at the next change", "error", err)
			p.failed[at] = err.Error()
		}
		return
	}
	delete(p.failed, at)
	l := &listener{socket: socket, route: route}
	p.listeners[at] = l
	p.running.Go(func() {
		if err := p.accept(l, log); !errors.Is(err, net.ErrClosed) {
			log.Error("NodePort is no longer served on localhost; tried again at the next change", "error", err)
			socket.Close()
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.listeners[at] == l {
				delete(p.listeners, at)
			}
		}
	})
}

// Close ends all listeners and connections.
func (p *Proxy) Close() {
	p.Sync(nil)
	p.cancel()
	p.running.Wait()
}
