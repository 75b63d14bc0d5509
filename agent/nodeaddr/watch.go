// Package nodeaddr follows the node's addresses by netlink.
package nodeaddr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Changes come in bursts (an interface comes up with its addresses and routes):
// they are taken in together once it is quiet, but at the latest after maxDelay.
const (
	quiet    = 50 * time.Millisecond
	maxDelay = 500 * time.Millisecond
	// retry is the pause after an error of the kernel's.
	retry = time.Second
)

// Options for Watch.
type Options struct {
	// NetNS is the file descriptor of the network namespace to watch; 0 is the process's own.
	NetNS int
	// Log gets what goes wrong; nil is slog.Default().
	Log *slog.Logger
}

// Watch calls onChange with the node's addresses, at once and whenever they have
// become others, until ctx ends. It calls from one goroutine, its own, and never
// twice with the same. Errors of the kernel's are logged and what failed is tried again.
func Watch(ctx context.Context, o Options, onChange func(Facts)) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	w := watcher{Options: o, onChange: onChange}
	for ctx.Err() == nil {
		err := w.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if w.failed != err.Error() {
			o.Log.Error("node addresses cannot be followed; the last known ones stay in use", "error", err, "retry", retry)
			w.failed = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

type watcher struct {
	Options
	onChange func(Facts)
	last     *Facts
	failed   string // the error that was logged last
}

// Read returns the node's addresses as they are. netNS is as in Options.
func Read(netNS int) (facts Facts, err error) {
	const attempts = 10
	for range attempts {
		if facts, err = read(netNS); !errors.Is(err, errInterrupted) {
			break
		}
	}
	return facts, err
}

// groups are those of the kernel's notifications that tell of changes (linux/rtnetlink.h).
var groups = [...]uint32{
	unix.RTNLGRP_LINK,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// watch reads everything, and again after each burst of changes, until something fails.
func (w *watcher) watch(ctx context.Context) error {
	monitor, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: w.NetNS})
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	defer monitor.Close()
	for _, g := range groups {
		if err := monitor.JoinGroup(g); err != nil {
			return fmt.Errorf("subscribe to netlink group %d: %w", g, err)
		}
	}

	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() { ended <- listen(monitor, changed) }()
	// Closing the socket ends listen, and watch does not return before it.
	fail := func(err error) error {
		monitor.Close()
		<-ended
		return err
	}
	for {
		err := w.read()
		switch {
		case errors.Is(err, errInterrupted):
			tell(changed)
		case err != nil:
			return fail(err)
		}
		select {
		case <-ctx.Done():
			return fail(ctx.Err())
		case err := <-ended:
			return err
		case <-changed:
		}
		settle(ctx, changed)
	}
}

// settle waits for the end of a burst.
func settle(ctx context.Context, changed <-chan struct{}) {
	deadline := time.After(maxDelay)
	for {
		select {
		case <-ctx.Done():
			return
		case <-deadline:
			return
		case <-time.After(quiet):
			return
		case <-changed:
		}
	}
}

// listen tells of changes on a channel that holds one of them. It returns when conn fails or is closed.
func listen(conn *netlink.Conn, changed chan<- struct{}) error {
	for {
		for msg, err := range conn.ReceiveIter() {
			// The kernel had more to say than the socket holds: something has changed.
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("receive netlink notifications: %w", err)
			}
			if err == nil && !relevant(msg) {
				continue
			}
			tell(changed)
		}
	}
}

// tell notes that something has changed.
func tell(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // that is noted already
	}
}

// relevant tells whether a notification can change Facts: of the routes, only
// default routes can. CNI plugins and routing daemons change many others.
func relevant(msg netlink.Message) bool {
	switch msg.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return isDefaultRoute(msg)
	}
	return true
}

// isDefaultRoute looks at rtm_dst_len, the second byte of struct rtmsg, without decoding the rest.
func isDefaultRoute(msg netlink.Message) bool { return len(msg.Data) > 1 && msg.Data[1] == 0 }

// read asks the kernel for everything and hands it on if it is new.
func (w *watcher) read() error {
	facts, err := read(w.NetNS)
	if err != nil {
		return err
	}
	if w.failed != "" {
		w.Log.Info("node addresses are followed again")
		w.failed = ""
	}
	if w.last == nil || !w.last.Equal(&facts) {
		w.last = &facts
		w.onChange(facts)
	}
	return nil
}

// errInterrupted says that something changed while it was listed: what was read
// may lack what was there before and after.
var errInterrupted = errors.New("changed while it was read")

// read lists links, addresses and routes. A change between two of the lists brings a
// notification, and so another reading.
func read(netNS int) (Facts, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: netNS})
	if err != nil {
		return Facts{}, fmt.Errorf("open netlink socket: %w", err)
	}
	defer conn.Close()

	links := map[uint32]link{}
	for msg, err := range dump(conn, unix.RTM_GETLINK, &rtnetlink.LinkMessage{}) {
		var m rtnetlink.LinkMessage
		if err == nil {
			err = m.UnmarshalBinary(msg.Data)
		}
		if err != nil {
			return Facts{}, fmt.Errorf("list interfaces: %w", err)
		}
		if l, ok := linkOf(&m); ok {
			links[m.Index] = l
		}
	}
	var addrs []address
	for msg, err := range dump(conn, unix.RTM_GETADDR, &rtnetlink.AddressMessage{}) {
		var m rtnetlink.AddressMessage
		if err == nil {
			err = m.UnmarshalBinary(msg.Data)
		}
		if err != nil {
			return Facts{}, fmt.Errorf("list addresses: %w", err)
		}
		if a, ok := addressOf(&m, links); ok {
			addrs = append(addrs, a)
		}
	}
	var routes []route
	for msg, err := range dump(conn, unix.RTM_GETROUTE, &rtnetlink.RouteMessage{}) {
		var m rtnetlink.RouteMessage
		if err == nil && !isDefaultRoute(msg) {
			continue
		}
		if err == nil {
			err = m.UnmarshalBinary(msg.Data)
		}
		if err != nil {
			return Facts{}, fmt.Errorf("list routes: %w", err)
		}
		routes = append(routes, routesOf(&m)...)
	}
	return newFacts(addrs, routes), nil
}

// dump lists one kind of object, message by message: a routing table may be large.
func dump(conn *netlink.Conn, typ netlink.HeaderType, request rtnetlink.Message) iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		data, err := request.MarshalBinary()
		if err == nil {
			_, err = conn.Send(netlink.Message{
				Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump},
				Data:   data,
			})
		}
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		interrupted := false
		for msg, err := range conn.ReceiveIter() {
			interrupted = interrupted || msg.Header.Flags&netlink.DumpInterrupted != 0
			if !yield(msg, err) || err != nil {
				return
			}
		}
		if interrupted {
			yield(netlink.Message{}, errInterrupted)
		}
	}
}
