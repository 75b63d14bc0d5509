package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// serveTest serves "ok" and returns the address.
func serveTest(t *testing.T, shared *Limit) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }), slog.New(slog.DiscardHandler))
	if shared != nil {
		go Serve(s, shared.Listener(l))
	} else {
		go Serve(s, l)
	}
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// open opens connections that send the beginning of a request and no more.
func open(t *testing.T, at string, n int) (conns []net.Conn) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n")
		conns = append(conns, conn)
	}
	return conns
}

// ask asks once, and returns how long the answer took.
func ask(t *testing.T, at string) time.Duration {
	t.Helper()
	begun := time.Now()
	conn, err := net.DialTimeout("tcp", at, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(begun.Add(20 * time.Second))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(begun), err)
	}
	answer.Body.Close()
	return time.Since(begun)
}

// expectClosed expects that the server closes a connection before the time is over that a slow client has.
func expectClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(ReadTimeout / 2))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection beyond the limit is still open: %v", err)
	}
}

// Clients that connect and say nothing cost others neither their answer nor the time that slow ones are given.
func TestSilentClientsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	at := serveTest(t, nil)
	conns := open(t, at, 4*maxConns)
	if took := ask(t, at); took >= ReadTimeout {
		t.Errorf("an answer took %v beside silent clients", took)
	}
	expectClosed(t, conns[0])
}

// Listeners that share a limit have that many connections together.
func TestLimitIsShared(t *testing.T) {
	t.Parallel()
	const most = 5
	shared := NewLimit(most)
	one, two := serveTest(t, shared), serveTest(t, shared)
	first := open(t, one, most)
	open(t, two, most)
	for _, conn := range first {
		expectClosed(t, conn)
	}
	ask(t, one)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if n := shared.open.Len(); n > most {
		t.Errorf("%d connections are open, want at most %d", n, most)
	}
}
