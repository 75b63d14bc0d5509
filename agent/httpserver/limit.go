package httpserver

import (
	"container/list"
	"net"
	"sync"
)

// Limit bounds how many connections are open at a time, over all listeners that share it. One more takes the place of the
// oldest, which is closed: whoever opens connections and says nothing keeps nobody else out, as clients that
// speak have their answer within milliseconds.
type Limit struct {
	most int

	mu   sync.Mutex
	open list.List // of *limitedConn, the oldest first
}

// NewLimit returns a Limit of that many connections.
func NewLimit(most int) *Limit { return &Limit{most: most} }

// Listener returns l with its connections under the limit.
func (m *Limit) Listener(l net.Listener) net.Listener { return limitListener{l, m} }

type limitListener struct {
	net.Listener
	limit *Limit
}

// Accept implements net.Listener.
func (l limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.limit.add(conn), nil
}

func (m *Limit) add(conn net.Conn) net.Conn {
	c := &limitedConn{Conn: conn, limit: m}
	m.mu.Lock()
	c.place = m.open.PushBack(c)
	var oldest *limitedConn
	if m.open.Len() > m.most {
		oldest = m.open.Front().Value.(*limitedConn)
		m.remove(oldest)
	}
	m.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close()
	}
	return c
}

// remove is called with the lock held.
func (m *Limit) remove(c *limitedConn) {
	if c.place != nil {
		m.open.Remove(c.place)
		c.place = nil
	}
}

type limitedConn struct {
	net.Conn
	limit *Limit
	place *list.Element // nil: it does not count any more; guarded by the limit's lock
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.limit.mu.Lock()
	c.limit.remove(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}
