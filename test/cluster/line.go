package cluster

import (
	"net"
	"sync"
	"time"
)

// line is how slow connections are.
type line struct {
	mu             sync.Mutex
	bytesPerSecond int
	delay          time.Duration
	stalled        bool
	changed        chan struct{} // closed and replaced with each change
}

func newLine() *line { return &line{changed: make(chan struct{})} }

func (l *line) set(bytesPerSecond int, delay time.Duration, stalled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytesPerSecond, l.delay, l.stalled = bytesPerSecond, delay, stalled
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *line) get() (bytesPerSecond int, delay time.Duration, stalled bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytesPerSecond, l.delay, l.stalled, l.changed
}

type lineListener struct {
	net.Listener
	line *line
}

// Accept implements net.Listener.
func (l *lineListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &lineConn{Conn: conn, line: l.line, queue: make(chan sent, 64), closed: make(chan struct{})}
	go c.run()
	return c, nil
}

// lineConn is a connection at whose writing end is a line.
type lineConn struct {
	net.Conn
	line   *line
	queue  chan sent
	once   sync.Once
	closed chan struct{}
}

// sent is what was written, and when.
type sent struct {
	at   time.Time
	data []byte
}

// Write implements net.Conn.
func (c *lineConn) Write(p []byte) (int, error) {
	select {
	case c.queue <- sent{time.Now(), append([]byte(nil), p...)}:
		return len(p), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *lineConn) run() {
	for {
		select {
		case s := <-c.queue:
			if !c.pass(s) {
				_ = c.Close()
				return
			}
		case <-c.closed:
			return
		}
	}
}

// pass lets through what was written, in pieces if the line is slow.
func (c *lineConn) pass(s sent) bool {
	for len(s.data) > 0 {
		rate, delay, stalled, changed := c.line.get()
		wait := max(0, time.Until(s.at.Add(delay)))
		if stalled {
			wait = time.Hour
		}
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-changed:
			case <-c.closed:
				return false
			}
			continue
		}
		piece := s.data
		if rate > 0 {
			piece = piece[:min(len(piece), max(1, rate/20))]
		}
		if _, err := c.Conn.Write(piece); err != nil {
			return false
		}
		s.data = s.data[len(piece):]
		if rate > 0 {
			time.Sleep(time.Second * time.Duration(len(piece)) / time.Duration(rate))
		}
	}
	return true
}
